"""What a member is owed: whatever waits for it counts, and whoever reads is never cut for it."""

from __future__ import annotations

import pytest
from engineio.async_socket import AsyncSocket

from sublet.office_server import lines as module
from sublet.office_server.lines import PACKET_BYTES, Line, Lines
from sublet.office_server.socketio_server import SocketIoServer
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
