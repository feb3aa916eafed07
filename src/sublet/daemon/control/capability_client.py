"""Typed client of the capabilities' area: ``CapabilityApi`` as its owner calls it."""

from __future__ import annotations

from sublet.daemon.api.capability_models import (
    CapabilityChecks,
    CapabilityDetail,
    CapabilityList,
    CapabilityRun,
    RunCapability,
)
from sublet.daemon.control.transport import Transport
from sublet.policy.capabilities.module_file import MODULE_ID
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line


class CapabilityClient:
    """Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list_capabilities(self) -> CapabilityList:
        """Return all capabilities, each by its first level."""
        return await self._transport.fetch(CapabilityList, "GET", "/v1/capabilities")

    async def inspect_capability(
        self, capability_id: str, *, level: int = 1, budget: int | None = None
    ) -> CapabilityDetail:
        """Return one level of one."""
        query: dict[str, int | str] = {"level": level} if budget is None else {"level": level, "budget": budget}
        return await self._transport.fetch(CapabilityDetail, "GET", _path(capability_id), query)

    async def verify_capability(self, capability_id: str) -> CapabilityChecks:
        """Try whether one can be used."""
        return await self._transport.fetch(CapabilityChecks, "POST", f"{_path(capability_id)}/verify", body={})

    async def run_capability(self, capability_id: str, request: RunCapability) -> CapabilityRun:
        """Run one."""
        return await self._transport.fetch(CapabilityRun, "POST", f"{_path(capability_id)}/run", body=request)


def _path(capability_id: str) -> str:
    """Return the path of a capability.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for what is no id, and would mean something else in a path.
    """
    if not MODULE_ID.fullmatch(capability_id):
        what = f"{clean_line(capability_id, 80)!r} is no id of a capability"
        raise SubletError(LocalCode.INVALID_ARGUMENT, what, "See: sublet capability list")
    return f"/v1/capabilities/{capability_id}"
