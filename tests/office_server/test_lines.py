"""What a member is owed: whatever waits for it counts, and whoever reads is never cut for it."""

from __future__ import annotations

import asyncio

import pytest
from engineio.async_socket import AsyncSocket

from sublet.office_server import lines as module
from sublet.office_server.lines import PACKET_BYTES, Line, Lines, Pace, works_for
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


async def test_who_comes_again_has_what_is_left_of_its_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines()
    before, other, again = (Line("127.0.0.1", lines) for _ in range(3))
    before.become_known("bob")
    before.pace.worked(1.0)
    other.become_known("alice")
    again.become_known("bob")
    assert again.pace is before.pace
    assert other.pace is not before.pace
    monkeypatch.setattr(module, "MAX_HOLDERS", 2)
    Line("127.0.0.1", lines).become_known("carol")
    assert lines.pace_of("bob") is before.pace
    assert lines.pace_of("alice") is not other.pace


async def test_a_pace_is_that_of_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    paces: list[Pace] = []
    pace_of = Lines.pace_of

    def noted(self: Lines, holder: str) -> Pace:
        assert "bob" not in holder
        paces.append(pace_of(self, holder))
        return paces[-1]

    monkeypatch.setattr(Lines, "pace_of", noted)
    async with served() as here:
        for secret in ("1-bob", "1-bob 2-bob", "1-alice"):
            await here.connected(secret)
    first, second, third = paces
    assert first is second
    assert third is not first
