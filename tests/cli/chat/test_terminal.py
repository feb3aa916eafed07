"""What the terminal of a chat tells others of who writes: at once, in order, and that it has ended as well."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from sublet.cli.chat import terminal
from sublet.cli.chat.talk import PRESENCE, Talk
from sublet.cli.chat.terminal import ChatScreen
from sublet.cli.rendering.entity_names import EntityNames
from sublet.daemon.api.room_presence import SET_PRESENCE
from sublet.daemon.api.rooms import RoomDetail

ME = "@human:here"


class Daemon:
    """Takes what is told to it; each telling waits until it is let through, as it does on a slow machine."""

    def __init__(self) -> None:
        self.told: list[bool] = []
        self.asked = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()

    async def call(self, operation: object, request: Any) -> object:
        if operation is SET_PRESENCE:
            self.asked.set()
            await self.open.wait()
            self.told.append(request.typing)
        return None


def talk_of(daemon: Daemon) -> Talk:
    room = RoomDetail.model_construct(room_id="room", name="Work", roles={}, config={"enabled_extensions": [PRESENCE]})
    return Talk(cast("Any", daemon), room, EntityNames(ME, {}), lambda: None)


class Typist:
    """A chat of which nothing is followed, and the keys that are pressed in it."""

    def __init__(self, talk: Talk, keys: Any) -> None:
        async def nothing(*_: object) -> None:
            await asyncio.Event().wait()

        async def said(text: str) -> None:
            return None

        vars(talk).update(follow=nothing, draft=self._empty, keep_draft=said, say=said)
        self.screen = ChatScreen(talk, input=keys, output=DummyOutput())
        self.keys = keys

    async def _empty(self) -> str:
        return ""


async def while_open(body: Callable[[Typist, Daemon], Awaitable[None]]) -> Daemon:
    daemon = Daemon()
    async with AsyncExitStack() as stack:
        keys = stack.enter_context(create_pipe_input())
        typist = Typist(talk_of(daemon), keys)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        group.create_task(typist.screen.run())
        await body(typist, daemon)
        typist.screen.app.exit()
    return daemon


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.anyio
async def test_whoever_has_sent_is_no_longer_writing() -> None:
    async def body(typist: Typist, daemon: Daemon) -> None:
        typist.keys.send_text("hi")
        await until(lambda: daemon.told == [True])
        typist.keys.send_text("\r")
        await until(lambda: daemon.told == [True, False])

    assert (await while_open(body)).told == [True, False]


@pytest.mark.anyio
async def test_what_is_told_last_is_what_holds() -> None:
    """The first telling is still under way when all is sent."""

    async def body(typist: Typist, daemon: Daemon) -> None:
        daemon.open.clear()
        typist.keys.send_text("hi")
        await daemon.asked.wait()
        typist.keys.send_text("\r")
        await until(lambda: typist.screen._input.text == "")
        daemon.open.set()
        await until(lambda: daemon.told[-1:] == [False])

    assert (await while_open(body)).told == [True, False]


@pytest.mark.anyio
async def test_whoever_pauses_is_no_longer_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "PAUSE_SECONDS", 0.01)

    async def body(typist: Typist, daemon: Daemon) -> None:
        typist.keys.send_text("hi")
        await until(lambda: daemon.told == [True, False])
        typist.keys.send_text(" again")
        await until(lambda: daemon.told == [True, False, True, False])

    await while_open(body)


@pytest.mark.anyio
async def test_an_edit_that_is_given_up_is_not_being_written() -> None:
    from sublet.cli.chat.talk import Aim

    async def body(typist: Typist, daemon: Daemon) -> None:
        typist.keys.send_text("hi")
        await until(lambda: daemon.told == [True])
        typist.screen._talk.aim = Aim("edit", "ref")
        typist.screen._escape()
        await until(lambda: daemon.told == [True, False])

    await while_open(body)


@pytest.mark.anyio
async def test_whoever_leaves_does_not_wait_for_a_daemon_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "LEAVE_SECONDS", 0.01)

    async def body(typist: Typist, daemon: Daemon) -> None:
        daemon.open.clear()
        typist.keys.send_text("hi")
        await daemon.asked.wait()

    async with asyncio.timeout(30):
        await while_open(body)
