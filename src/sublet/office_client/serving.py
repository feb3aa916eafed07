"""Keeps a Computer in its office: it joins, tells of new tools, and comes again with the same token when cut off."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import anyio
import structlog

from sublet.office_client.computer import Computer
from sublet.office_client.link import Link, Place, Unreachable, open_link
from sublet.office_client.servers import ToolServer
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.offices.names import Role, ServerEvent
from sublet.protocol.text import clean_line

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""After which a connection that ends counts as the first that does."""
SETTLE_SECONDS: Final = 0.3
"""How long changes of tools are gathered before the office is told."""
_JITTER: Final = 1_000
_MAY_PASS: Final = frozenset({LocalCode.DAEMON_UNAVAILABLE, LocalCode.UNAVAILABLE})
"""What a daemon that starts again answers meanwhile, or nobody does."""

log = structlog.get_logger(__name__)


class Serving:
    """One Computer and its office.

    Args:
        computer: answers.
        servers: whose tools it shows.
        place: says where its office is, each time anew.
        token: lets it in; it is shown to its office and to nobody else.
        changes: tells when tools may have changed.
    """

    def __init__(
        self,
        computer: Computer,
        servers: Sequence[ToolServer],
        place: Callable[[], Awaitable[Place]],
        token: str,
        changes: Changes,
    ) -> None:
        self._computer = computer
        self._servers = servers
        self._place = place
        self._token = token
        self._changes = changes
        self._joined_once = False

    async def run(self, ready: Callable[[Place], None], stopping: anyio.Event) -> None:
        """Serve until ``stopping`` is set, or the office says no for good.

        Args:
            ready: is called with where the office is, whenever it was joined.
            stopping: ends it, within ``CLOSE_SECONDS`` and what servers may take to end.

        Raises:
            SubletError: a server can't be started, or the office refuses for good.
        """
        try:
            async with anyio.create_task_group() as group:
                for server in self._servers:
                    group.start_soon(server.serve)
                group.start_soon(_cancel_when, stopping, group.cancel_scope)
                await self._started()
                await self._stay(ready)
        except BaseExceptionGroup as failures:
            raise _sole(failures) from None

    async def _started(self) -> None:
        for server in self._servers:
            await server.started.wait()
            if server.failure:
                raise SubletError(
                    LocalCode.UNAVAILABLE, server.failure, "Run the command by itself, to see whether it starts."
                )

    async def _stay(self, ready: Callable[[Place], None]) -> None:
        pause = FIRST_PAUSE
        while True:
            began = anyio.current_time()
            try:
                why = await self._once(ready)
            except Unreachable as error:
                if not self._joined_once:
                    raise SubletError(
                        LocalCode.UNAVAILABLE, str(error), "Is it served there? See: sublet office list"
                    ) from None
                why = str(error)
            if anyio.current_time() - began >= STEADY_SECONDS:
                pause = FIRST_PAUSE
            log.warning("the office is away and is tried again", reason=why, seconds=pause)
            # Not all at once, where many were cut off in one moment.
            await anyio.sleep(pause * (0.5 + secrets.randbelow(_JITTER) / _JITTER))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _once(self, ready: Callable[[Place], None]) -> str:
        """Join, and serve until the connection ends; return why it did."""
        place, link = await self._reached()
        why = ""

        async def serve() -> None:
            nonlocal why
            why = await link.serve(self._computer)
            group.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(serve)
                with suppress(Unreachable):  # why is what the end of the connection says
                    await self._join(link, place)
                    self._joined_once = True
                    log.info("this computer has joined its office", office_id=place.office_id)
                    ready(place)
                    await self._tell_changes(link)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as failures:
            raise _sole(failures) from None
        finally:
            await link.close()
        why = why or "the server does not answer"
        if not self._joined_once:
            raise Unreachable(why)
        return why

    async def _reached(self) -> tuple[Place, Link]:
        try:
            place = await self._place()
            return place, await open_link(place, self._token)
        except SubletError as error:
            if self._joined_once and error.code in _MAY_PASS:
                raise Unreachable(error.message) from None
            raise

    async def _join(self, link: Link, place: Place) -> None:
        asked: dict[str, JsonValue] = {
            "role": str(Role.COMPUTER),
            "name": self._computer.name,
            "office_id": place.office_id,
        }
        self._changes.seen()  # who hears of us asks what we have
        answer = await link.call(ServerEvent.JOIN, asked)
        if answer[:1] == (True,):
            return
        said = answer[1] if len(answer) > 1 and isinstance(answer[1], str) else "it has not said why"
        why = clean_line(said, 200)
        if self._joined_once:
            # Our own last connection may still be there for a while, at servers that wait for it to end.
            raise Unreachable(f"the office does not let us in again yet: {why}")
        raise SubletError(
            LocalCode.POLICY_DENIED,
            f"the office has not let {self._computer.name} in: {why}",
            "A token is for one office, role and name: --name has to be that of `sublet office token`.",
        )

    async def _tell_changes(self, link: Link) -> None:
        while True:
            await self._changes.wait()
            await anyio.sleep(SETTLE_SECONDS)
            self._changes.seen()
            await link.call(ServerEvent.UPDATE_TOOL_LIST, {"computer": self._computer.name})


class Changes:
    """Whether tools have changed since somebody looked."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def note(self) -> None:
        """Take note of a change."""
        self._event.set()

    async def wait(self) -> None:
        """Return once there is a change that nobody has seen."""
        await self._event.wait()

    def seen(self) -> None:
        """Take all changes so far as seen."""
        self._event = anyio.Event()


async def _cancel_when(stopping: anyio.Event, scope: anyio.CancelScope) -> None:
    await stopping.wait()
    scope.cancel()


def _sole(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the failure that a user is told about, where there is one among them; else all of them."""
    one: BaseException | None = failures.split(SubletError)[0]
    while isinstance(one, BaseExceptionGroup):
        one = one.exceptions[0]
    return one or failures
