"""C31, C32 and C37 as agents in MCP hosts meet them: mail waits, nobody is an error, and no two answer for ever."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from sublet.daemon.config.paths import resolve_home
from support.daemon_rooms import until_known
from support.daemons import Daemon, two_daemons
from support.mcp_face import server_of
from support.tool_answers import facts, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]
MAX_HOPS = 3
WAIT_SECONDS = 40


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[tuple[Daemon, Daemon]]:
    for name in ("a", "b"):
        config = tmp_path / name / "config"
        config.mkdir(mode=0o700, parents=True)
        (config / "config.json").write_text(json.dumps({"messaging": {"max_hops": MAX_HOPS}}))
        config.parent.chmod(0o700)
    with two_daemons(tmp_path) as both:
        for daemon in both:
            daemon.run("whoami")
        yield both


def host_of(daemon: Daemon) -> Client:
    return Client(server_of(resolve_home({"SUBLET_HOME": str(daemon.home)})))


async def ask(host: Client, tool: str, **arguments: object) -> dict[str, Any]:
    return facts(await host.call_tool(tool, arguments))


async def mail(host: Client, cursor: str | None = None, wait: float = WAIT_SECONDS) -> tuple[list[dict[str, Any]], str]:
    """Return the messages of others since ``cursor``, and the next one; waits for the first."""
    with anyio.fail_after(2 * WAIT_SECONDS):
        while True:
            given = {"cursor": cursor} if cursor is not None else {}
            found = await ask(host, "watch", wait_seconds=wait, **given)
            messages = [one["message"] for one in found["events"] if one["kind"] == "message.new"]
            if messages or not wait:
                return messages, found["next_cursor"]
            cursor = found["next_cursor"]


async def test_c31_c32_and_c37_between_agents_of_two_daemons(daemons: tuple[Daemon, Daemon]) -> None:
    alice, bob = daemons
    other = f"@mcp:{bob.json('status')['node_id']}"
    async with host_of(alice) as a, host_of(bob) as b:
        sent = await ask(a, "send_message", to=other, message="hello")
        room, ref = sent["room_id"], sent["ref_id"]
        await anyio.to_thread.run_sync(until_known, bob, room)

        # Bob was idle: it is told first, again while he has not come back with its cursor, and then no more.
        (first,), cursor = await mail(b)
        assert first["from_peer"]["text"] == "hello"
        (again,), cursor = await mail(b)
        assert again["ref_id"] == first["ref_id"] == ref
        for nobody in ("@mcp:nowhere", other.replace("@mcp", "@typo"), "typo@bob"):
            unknown = await a.call_tool("send_message", {"to": nobody, "message": "hello?"})
            assert unknown.is_error
            assert "NOT_FOUND" in text_of(unknown)

        # Bob waits: he hears it at once, and hears nothing twice.
        async with anyio.create_task_group() as group:
            group.start_soon(partial(ask, a, "send_message", to=room, message="are you there?", reply_to=ref))
            (second,), cursor = await mail(b, cursor)
        assert second["from_peer"]["text"] == "are you there?"
        nothing, cursor = await mail(b, cursor, wait=0)
        assert nothing == (await mail(b, wait=0))[0] == []

        # They answer each other until that is refused with its chain, and nothing is written.
        hosts, cursors, last = (b, a), [cursor, None], second["ref_id"]
        for turn in range(MAX_HOPS):
            said = await ask(hosts[turn % 2], "send_message", to=room, message="and you?", reply_to=last)
            last, hearer = said["ref_id"], (turn + 1) % 2
            heard, cursors[hearer] = await mail(hosts[hearer], cursors[hearer])
            assert [one["ref_id"] for one in heard] == [last]
        refused = await hosts[MAX_HOPS % 2].call_tool(
            "send_message", {"to": room, "message": "and you?", "reply_to": last}
        )
        assert refused.is_error
        assert "LOOP_REFUSED" in text_of(refused)
        assert f"→ {other}" in text_of(refused)
        for host in hosts:
            page = await ask(host, "read_messages", room=room)
            assert len(page["messages"]) == 2 + MAX_HOPS
