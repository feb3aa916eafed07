"""Serves the operations of ``api.daemon``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sublet.daemon.api.daemon import (
    RELOAD,
    RUN_DOCTOR,
    SHOW_STATUS,
    STOP,
    Check,
    ReloadReport,
    StatusView,
    Stopping,
)
from sublet.daemon.api.operation import Nothing
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import serves
from sublet.policy.decision import Subject


class StateService:
    """Tells how the daemon is, has its files read anew, and stops it.

    Args:
        gate: asks policy.
        status: returns the daemon at a glance.
        doctor: checks this machine.
        reload: reads agents and policy anew.
        stop: asks the daemon to stop, and returns at once.
    """

    def __init__(
        self,
        gate: Gatekeeper,
        status: Callable[[], Awaitable[StatusView]],
        doctor: Callable[[], Awaitable[list[Check]]],
        reload: Callable[[], Awaitable[ReloadReport]],
        stop: Callable[[], None],
    ) -> None:
        self._gate = gate
        self._status = status
        self._doctor = doctor
        self._reload = reload
        self._stop = stop

    @serves(SHOW_STATUS)
    async def show_status(self, request: Nothing, caller: Subject) -> StatusView:
        return await self._status()

    @serves(RUN_DOCTOR)
    async def run_doctor(self, request: Nothing, caller: Subject) -> list[Check]:
        return await self._doctor()

    @serves(RELOAD)
    async def reload(self, request: Nothing, caller: Subject) -> ReloadReport:
        return await self._reload()

    @serves(STOP)
    async def stop(self, request: Nothing, caller: Subject) -> Stopping:
        self._stop()
        return Stopping()
