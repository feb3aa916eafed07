"""Every page goes on after the cursor of the one before, and a call waits as long as it is told to."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from sublet.daemon.config.paths import Home
from sublet.protocol.lifecycle import DelegationState
from support.fake_daemon_api import FakeDaemonApi, a_peer
from support.fake_rooms import FakeRooms
from support.tool_answers import WORK, connected, facts

pytestmark = pytest.mark.anyio


async def test_a_log_goes_on_after_its_cursor(api: FakeDaemonApi, home: Home) -> None:
    async with connected(api, home) as client:
        found = facts(await client.call_tool("delegate", WORK))["delegation_id"]
        other = facts(await client.call_tool("delegate", WORK))["delegation_id"]
        await api.output(found, "first\n")
        await api.output(other, "of another\n")
        page = facts(await client.call_tool("delegate_output", {"delegation_id": found}))
        assert page["from_peer"]["text"] == "first\n"
        await api.output(found, "second\n")
        given = {"delegation_id": found, "cursor": page["next_cursor"]}
        assert facts(await client.call_tool("delegate_output", given))["from_peer"]["text"] == "second\n"


async def test_a_call_waits_for_the_end(api: FakeDaemonApi, home: Home) -> None:
    async with connected(api, home) as client:
        found = facts(await client.call_tool("delegate", WORK))["delegation_id"]
        await api.change(found, state=DelegationState.RUNNING)
        ended: list[Any] = []

        async def wait() -> None:
            given = {"delegation_id": found, "section": "summary", "wait_seconds": 40}
            ended.append(facts(await client.call_tool("delegate_output", given)))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            with anyio.fail_after(10):
                while not api.waits:
                    await anyio.sleep(0.01)
            await api.finish(found)
    assert ended[0]["finished"]


async def test_a_directory_goes_on_after_its_cursor(api: FakeDaemonApi, home: Home) -> None:
    api.peers = [a_peer(f"peer-{number:03d}") for number in range(300)]
    async with connected(api, home) as client:
        first = facts(await client.call_tool("directory", {}))
        second = facts(await client.call_tool("directory", {"cursor": first["next_cursor"]}))
    assert first["peers"][0]["name"] == "peer-000"
    assert second["peers"][0]["name"] == f"peer-{len(first['peers']):03d}"


async def test_a_room_goes_on_after_its_cursor(api: FakeDaemonApi, home: Home) -> None:
    talk = FakeRooms()
    for number in range(6):
        talk.hear(f"{number}")
    async with connected(api, home, talk=talk) as client:
        last = facts(await client.call_tool("read_messages", {"room": "Work", "limit": 2}))
        given = {"room": "Work", "limit": 2, "cursor": last["next_cursor"]}
        before = facts(await client.call_tool("read_messages", given))
    told = [[one["from_peer"]["text"] for one in page["messages"]] for page in (last, before)]
    assert told == [["4", "5"], ["2", "3"]]


async def test_news_go_on_after_their_cursor(api: FakeDaemonApi, home: Home) -> None:
    talk = FakeRooms()
    async with connected(api, home, talk=talk) as client:
        talk.hear("first")
        first = facts(await client.call_tool("watch", {}))
        talk.hear("second")
        second = facts(await client.call_tool("watch", {"cursor": first["next_cursor"]}))
    told = [[one["message"]["from_peer"]["text"] for one in page["events"]] for page in (first, second)]
    assert told == [["first"], ["second"]]


async def test_news_are_waited_for(api: FakeDaemonApi, home: Home) -> None:
    talk = FakeRooms()
    found: list[Any] = []
    async with connected(api, home, talk=talk) as client:
        first = facts(await client.call_tool("watch", {}))
        api.waits = 0

        async def wait() -> None:
            given = {"cursor": first["next_cursor"], "wait_seconds": 40}
            found.append(facts(await client.call_tool("watch", given)))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            with anyio.fail_after(10):
                while not api.waits:
                    await anyio.sleep(0.01)
            talk.hear("news")
    assert [event["kind"] for event in found[0]["events"]] == ["message.new"]
