"""Large bodies wait for a place, and no caller has all places."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Message, Receive, Scope, Send

from sublet.a2a_server import large_bodies, limits
from sublet.a2a_server.caller import SCOPE_KEY, Caller
from sublet.a2a_server.json_rpc import LARGE_BYTES
from sublet.a2a_server.large_bodies import MAX_LARGE, MAX_LARGE_OF_CALLER, LargeBodies
from sublet.a2a_server.limits import BoundedBodies

pytestmark = pytest.mark.anyio
LARGE = b"x" * (LARGE_BYTES + 1)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collect as soon as a body has ended."""
    monkeypatch.setattr(large_bodies, "COLLECT_SECONDS", 0.0)


async def turns() -> None:
    """Let everything go on that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_caller_has_few_places_and_others_have_theirs() -> None:
    bodies = LargeBodies()
    mine = [bodies.place("a") for _ in range(MAX_LARGE_OF_CALLER + 1)]
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(place.take()) for place in mine]
        await turns()
        assert [task.done() for task in asked] == [True] * MAX_LARGE_OF_CALLER + [False]
        other = bodies.place("b")
        await other.take()
        mine[0].give_back()
        mine[0].give_back()  # once more is nothing
    for place in (*mine, other):
        place.give_back()
    await turns()
    assert bodies._of == {}


async def test_all_callers_together_have_a_bounded_number_and_who_gives_up_leaves_nothing() -> None:
    bodies = LargeBodies()
    places = [bodies.place(str(number)) for number in range(MAX_LARGE)]
    for place in places:
        await place.take()
    late = bodies.place("late")
    task = asyncio.create_task(late.take())
    await turns()
    assert late.waits
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    late.give_back()
    assert set(bodies._of) == {str(number) for number in range(MAX_LARGE)}
    for place in places:
        place.give_back()
    await turns()
    again = [bodies.place(str(number)) for number in range(MAX_LARGE)]
    for place in again:
        await place.take()
    assert not any(place.waits for place in again)


class Server:
    """Bounded bodies before an application whose requests are answered when a test says so."""

    def __init__(self) -> None:
        self.reached = 0
        self.go_on = asyncio.Event()
        self.app = BoundedBodies(self._serve, {})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        self.reached += 1
        await self.go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    async def ask(self, owner: str, body: bytes, status: list[int]) -> None:
        """Post a body as somebody and note the status of the answer."""

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                status.append(message["status"])

        caller = Caller(owner, None, "127.0.0.1", lambda: True)
        headers = [(b"content-length", str(len(body)).encode())]
        await self.app({"type": "http", "path": "/", "headers": headers, SCOPE_KEY: caller}, receive, send)


async def asked(group: asyncio.TaskGroup, count: int, ask: Callable[[], Awaitable[None]]) -> list[asyncio.Task[None]]:
    """Ask so often side by side."""

    async def once() -> None:
        await ask()

    tasks = [group.create_task(once()) for _ in range(count)]
    await turns()
    return tasks


async def test_a_body_waits_until_an_earlier_one_is_answered_and_small_ones_do_not() -> None:
    server, status = Server(), list[int]()
    async with asyncio.TaskGroup() as group:
        tasks = await asked(group, MAX_LARGE_OF_CALLER + 2, lambda: server.ask("a", LARGE, status))
        assert server.reached == MAX_LARGE_OF_CALLER
        tasks += await asked(group, 1, lambda: server.ask("a", b"{}", status))
        assert server.reached == MAX_LARGE_OF_CALLER + 1
        server.go_on.set()
        await turns()
        assert status == [200] * (MAX_LARGE_OF_CALLER + 3)
        for task in tasks:
            task.cancel()


async def test_who_has_sent_too_many_is_told_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BODY_SECONDS", 0.01)
    server, status = Server(), list[int]()
    async with asyncio.TaskGroup() as group:
        tasks = await asked(group, MAX_LARGE_OF_CALLER, lambda: server.ask("a", LARGE, status))
        await server.ask("a", LARGE, status)
        assert status == [503]
        for task in tasks:
            task.cancel()


async def test_what_works_on_a_body_for_long_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_bodies, "HELD_SECONDS", 0.0)
    server, status = Server(), list[int]()
    async with asyncio.TaskGroup() as group:
        tasks = await asked(group, 2 * MAX_LARGE_OF_CALLER, lambda: server.ask("a", LARGE, status))
        async with asyncio.timeout(10):
            while server.reached < 2 * MAX_LARGE_OF_CALLER:
                await asyncio.sleep(0)
        assert status == []
        for task in tasks:
            task.cancel()


class _Body(bytearray):
    """A body that can be asked whether it is still there."""


async def test_nothing_is_left_of_a_refused_body_when_the_next_one_gets_its_place() -> None:
    left: list[weakref.ref[_Body]] = []

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        body = _Body((await receive())["body"])
        assert not any(earlier() for earlier in left), "an earlier body is still there"
        left.append(weakref.ref(body))
        kept = None
        try:
            raise ValueError(len(body))
        except ValueError as error:
            kept = error  # as the SDK's wrappers do: the error keeps this frame, and the frame the error
        await send({"type": "http.response.start", "status": len(str(kept)), "headers": []})

    server, status = Server(), list[int]()
    server.app = BoundedBodies(refuse, {})
    gc.disable()
    try:
        for _ in range(3 * MAX_LARGE_OF_CALLER):
            await server.ask("a", LARGE, status)
            await turns()
    finally:
        gc.enable()
    assert len(left) == len(status) == 3 * MAX_LARGE_OF_CALLER
