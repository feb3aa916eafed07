"""Fails services of daemons in this process on purpose, in the middle of their work."""

from __future__ import annotations

import functools
from collections.abc import Collection

import anyio
import pytest

from sublet.tasks import Pauses, Service, ServiceHealth, Services

QUICK = Pauses(first=0.01, longest=0.05)
REASON = "thrown\x1b[31m on purpose"


class Saboteur:
    """Can end any service of the daemons that are started after this is made.

    Args:
        monkeypatch: takes it back at the end.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._made: list[Services] = []
        self._ends: dict[tuple[int, str], anyio.Event] = {}
        run_once = Services.run_once

        def made() -> Services:
            self._made.append(Services(QUICK))
            return self._made[-1]

        async def run_or_fail(services: Services, service: Service) -> None:
            end = self._ends[id(services), service.name] = anyio.Event()

            async def fail() -> None:
                await end.wait()
                raise RuntimeError(REASON)

            async with anyio.create_task_group() as group:
                group.start_soon(fail)
                await run_once(services, service)

        monkeypatch.setattr("sublet.app.running.Services", made)
        monkeypatch.setattr(Services, "run_once", functools.wraps(run_once)(run_or_fail))

    def names(self) -> set[str]:
        """Return the names of all services that run somewhere."""
        return {one.name for services in self._made for one in services.health}

    def run_everywhere(self, names: Collection[str]) -> bool:
        """Tell whether every daemon has begun to run all of these services."""
        return bool(self._made) and all((id(services), name) in self._ends for services in self._made for name in names)

    async def fail(self, name: str, times: int = 1) -> None:
        """Fail a service in every daemon that has it, and return once each runs again."""
        for _ in range(times):
            failed = [services for services in self._made if self._ends.get((id(services), name))]
            assert failed, f"no daemon has a service {name!r}"
            before = [self._health(services, name).restarts for services in failed]
            for services, count in zip(failed, before, strict=True):
                while self._health(services, name).restarts <= count or self._health(services, name).state != "running":
                    if self._health(services, name).restarts <= count:
                        # Again and again: what it is a part of may just be starting, and then begins another run.
                        self._ends[id(services), name].set()
                    await anyio.sleep(0.01)

    def _health(self, services: Services, name: str) -> ServiceHealth:
        return next(one for one in services.health if one.name == name)
