"""Keeps a failure where it happened: a service is started again after a pause, a task of one caller ends alone.

Three kinds of tasks run in the daemon:

- *Services* live as long as the daemon, such as the one that accepts SFTP connections. ``Services.keep`` runs them: one
  that fails, or ends although it should not, is started again after a pause that grows up to ``Pauses.longest``.
- *Tasks of one delegation, connection or request* are started by a service into its own group. ``start_alone`` runs
  them: their failure is logged and reaches neither the service nor its other tasks.
- *Parts of one operation* run in a group that this very operation opens and waits for; their failure is the
  operation's. They are started as usual, and ``tests/test_background_tasks.py`` lists where.

Weak: a service that hangs without failing is not noticed here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVarTuple

import anyio
import structlog
from anyio.abc import TaskGroup

from sublet.protocol.text import clean_line

MAX_ERROR_CHARS: Final = 200
MAX_SERVICES: Final = 64
"""Services whose state is kept; of further ones nothing is told, as their names could be a peer's."""

log = structlog.get_logger(__name__)

Arguments = TypeVarTuple("Arguments")
State = Literal["running", "pausing", "stopped"]


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds between a failure and the next start.

    Args:
        first: after the first failure; each further one doubles it.
        longest: the bound of that.
        steady: a service that ran for so long begins with ``first`` again.
    """

    first: float = 0.5
    longest: float = 60.0
    steady: float = 120.0


@dataclass(slots=True)
class ServiceHealth:
    """How a service is: its state, how often it was started again, and how it failed last (cleaned, or empty)."""

    name: str
    state: State = "running"
    restarts: int = 0
    last_error: str = ""
    failed_at: float | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """A service of the daemon.

    Args:
        name: what ``status`` and the log call it.
        serve: runs until cancelled, and can be called again after it has failed.
        hurry: returns an event that ends the pause before the next start; None where nobody can ask for that.
    """

    name: str
    serve: Callable[[], Awaitable[None]]
    hurry: Callable[[], Awaitable[object]] | None = None


class Ended(Exception):
    """A service returned although nobody stopped it."""


class Services:
    """Runs services and knows how each is.

    Args:
        pauses: how long a failed service rests.
        clock: returns Unix seconds.
    """

    def __init__(self, pauses: Pauses | None = None, clock: Callable[[], float] = time.time) -> None:
        self._pauses = pauses or Pauses()
        self._clock = clock
        self._health: dict[str, ServiceHealth] = {}

    @property
    def health(self) -> Sequence[ServiceHealth]:
        """How all services are, by name."""
        return [one for _, one in sorted(self._health.items())]

    @asynccontextmanager
    async def running(self, *services: Service) -> AsyncIterator[None]:
        """Run ``services`` beside the body; when it ends they are cancelled, each cleans up within its own bounds."""
        async with anyio.create_task_group() as group:
            for service in services:
                self.start(group, service)
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    def start(self, group: TaskGroup, service: Service) -> None:
        """Run ``service`` in ``group`` until that is cancelled."""
        group.start_soon(self.keep, service)

    async def keep(self, service: Service) -> None:
        """Run ``service`` until cancelled, again and again where it fails."""
        health = self._known(service.name)
        pause = self._pauses.first
        try:
            while True:
                health.state = "running"
                began = anyio.current_time()
                try:
                    await self.run_once(service)
                except BaseException as error:
                    if not is_failure(error):
                        raise
                    self._failed(health, error)
                if anyio.current_time() - began >= self._pauses.steady:
                    pause = self._pauses.first
                with anyio.move_on_after(pause):
                    await (anyio.sleep_forever() if service.hurry is None else service.hurry())
                pause = min(2 * pause, self._pauses.longest)
                health.restarts += 1
                log.info("a service is started again", service=service.name, restarts=health.restarts)
        finally:
            health.state = "stopped"

    async def run_once(self, service: Service) -> None:
        """Run ``service`` until it fails.

        Raises:
            Ended: it returned, or was cancelled by something that it waited for and not by whoever runs it.
        """
        before = _cancelling()
        try:
            await service.serve()
        except asyncio.CancelledError:
            if _is_cancelled(before):
                raise
            raise Ended("something that it waited for was cancelled") from None
        raise Ended("it ended by itself")

    def _known(self, name: str) -> ServiceHealth:
        known = self._health.get(name)
        if known is None:
            known = ServiceHealth(name)
            if len(self._health) < MAX_SERVICES:
                self._health[name] = known
        return known

    def _failed(self, health: ServiceHealth, error: BaseException) -> None:
        log.error("a service failed and is started again soon", service=health.name, exc_info=error)
        health.state, health.last_error, health.failed_at = "pausing", described(error), self._clock()


def start_alone(
    group: TaskGroup | asyncio.TaskGroup,
    what: str,
    call: Callable[[*Arguments], Awaitable[Any]],
    *arguments: *Arguments,
) -> None:
    """Start a task in the group of a service; its failure is logged, and ends nothing but the task.

    Args:
        group: of the service.
        what: names the task in the log.
        call: does the work.
        arguments: of ``call``.
    """
    if isinstance(group, asyncio.TaskGroup):
        group.create_task(alone(what, call, *arguments))
    else:
        group.start_soon(alone, what, call, *arguments)


async def alone(what: str, call: Callable[[*Arguments], Awaitable[Any]], *arguments: *Arguments) -> None:
    """Run ``call`` and log its failure. Nothing is raised but the wish of whoever runs this that it ends.

    A cancellation of something that ``call`` waited for is a failure like any other: raised, it would cancel the group.
    """
    before = _cancelling()
    try:
        await call(*arguments)
    except asyncio.CancelledError:
        if _is_cancelled(before):
            raise
        log.exception("a task was cut off by what it waited for, and nothing else with it", task=what)
    except BaseException as error:
        if not is_failure(error):
            raise
        log.exception("a task failed, and nothing else with it", task=what)


def _cancelling() -> int:
    """Return how often the cancellation of this task was asked for."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


def _is_cancelled(before: int) -> bool:
    """Tell whether this task itself is cancelled, by what ``_cancelling`` said before."""
    return _cancelling() > before or anyio.get_current_task().has_pending_cancellation()


def is_failure(error: BaseException) -> bool:
    """Tell whether an error is a failure, and no wish of somebody's that something ends.

    A library in Rust that panics raises what is no ``Exception``, and has failed all the same.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_failure, error.exceptions))
    return not isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit | GeneratorExit)


def described(error: BaseException) -> str:
    """Return kind and message of an error, the first one of a group, on one clean line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error)
    return clean_line(f"{type(error).__name__}: {text}" if text else type(error).__name__, MAX_ERROR_CHARS)
