"""What a member is owed: whatever waits for it counts, and whoever reads is never cut for it."""

from __future__ import annotations

import asyncio

import pytest
from engineio.async_socket import AsyncSocket

from sublet.office_server import lines as module
from sublet.office_server.lines import PACKET_BYTES, Line, Lines, works_for
from sublet.office_server.socketio_server import SocketIoServer
from sublet.turns import Turnstile
from support.office_client import Ears, served

pytestmark = pytest.mark.anyio


async def test_whatever_waits_for_a_member_counts_answers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OWED_BYTES", 3 * (PACKET_BYTES + 101))
    lines, line, ended = Lines(), Line(), list[bool]()
    engine = SocketIoServer(lines, Ears())._sio.eio
    assert line.carried_by(None, lambda: ended.append(True))
    line.become_known()
    lines.opened("s", line)
    engine.sockets["s"] = waiting = AsyncSocket(engine, "s")
    for _ in range(3):
        await engine.send("s", "x" * 100)
    assert lines.overdue() == []
    assert ended == []
    await engine.send("s", "x")
    assert ended == [True]
    assert lines.overdue() == ["s"], "also where it polls, and nothing could be ended at once"
    assert waiting.queue.qsize() == 3
    line.left(3 * 101, 3)
    assert line.owed == 0


async def test_who_reads_what_it_is_told_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OWED_BYTES", 20 * PACKET_BYTES)
    async with served() as here:
        alice, bob = await here.joined("1-alice"), await here.joined("1-bob")
        for _ in range(60):
            assert await bob.call("server:update_config", {"computer": "bob"}) == []
            assert await alice.call("server:tool_call_cancel", {"agent": "alice", "req_id": "x"}) == []
        assert [event for event, _ in await alice.quiet()].count("notify:update_config") == 60


async def test_of_a_session_that_is_over_nothing_is_kept() -> None:
    lines = Lines()
    line = Line("127.0.0.1", lines)
    server = SocketIoServer(lines, Ears())
    engine = server._sio.eio
    works_for(line)
    engine.sockets["s"] = socket = AsyncSocket(engine, "s")
    socket.schedule_ping()
    lines.opened("s", line)
    await engine.send("s", "x" * 1_000)
    assert socket.queue.qsize() == 1
    ping = line.next_ping
    assert ping is not None
    await server._look_after()
    assert socket.queue.qsize() == 1
    del engine.sockets["s"]
    await server._look_after()
    assert socket.queue.empty()
    assert lines.sessions() == []
    with pytest.raises(asyncio.CancelledError):
        await ping


async def test_sessions_that_begin_at_one_moment_wait_for_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[Turnstile] = []
    passed = Turnstile.passed

    async def counted(self: Turnstile) -> None:
        turns.append(self)
        await passed(self)

    monkeypatch.setattr(Turnstile, "passed", counted)
    async with served() as here:
        client = await here.connected("1-bob")
        # One of the listener, for connections, and one of ours, for what a session costs.
        assert len(set(map(id, turns))) == len(turns) == 2
        await client.call("server:update_config", {"computer": "bob"})
        assert len(turns) == 2
