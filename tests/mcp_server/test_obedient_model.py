"""What a model does that follows ``next_step`` to the letter, and what a host's cancel does to a waiting call."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError

from sublet.daemon.api.delegation_views import ConditionView
from sublet.daemon.config.paths import Home
from sublet.mcp_server import begun as begun_calls
from sublet.mcp_server import call as call_module
from sublet.protocol.lifecycle import DelegationState
from support.fake_daemon_api import FakeDaemonApi
from support.fake_rooms import FakeRooms
from support.mcp_face import call, raw_host, served
from support.tool_answers import WORK, connected, facts, same_facts

pytestmark = pytest.mark.anyio


def told_call(next_step: str, tool: str) -> dict[str, Any]:
    """Return the arguments of the call of ``tool`` that an answer tells its model to make."""
    start = next_step.index(f"{tool}(")
    whole = next_step[start : next_step.index(")", start) + 1]
    parsed = ast.parse(whole, mode="eval").body
    assert isinstance(parsed, ast.Call)
    return {str(one.arg): ast.literal_eval(one.value) for one in parsed.keywords}


async def obey(client: Client, answer: Mapping[str, Any], tool: str = "delegate_output") -> dict[str, Any]:
    """Make the call that ``answer`` tells to make."""
    return same_facts(await client.call_tool(tool, told_call(answer["next_step"], tool)))


async def test_D50_a_model_that_obeys_waits_for_news_and_reads_each_line_once(
    api: FakeDaemonApi, home: Home, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(api, home, mode) as client:
        begun = same_facts(await client.call_tool("delegate", WORK))
        found = begun["delegation_id"]
        answer = await obey(client, begun)
        read: list[str] = []
        waiting = anyio.Event()
        follow = call_module.Call.follow

        async def noted(self: call_module.Call, *args: Any, **options: Any) -> Any:
            waiting.set()
            return await follow(self, *args, **options)

        monkeypatch.setattr(call_module.Call, "follow", noted)
        for number in range(5):
            waiting = anyio.Event()

            async def says(line: str, follows: anyio.Event) -> None:
                await follows.wait()
                await api.output(found, line)

            async with anyio.create_task_group() as group:
                group.start_soon(says, f"line {number}\n", waiting)
                answer = await obey(client, answer)
            read.append(answer["from_peer"]["text"])
            assert answer["finished"] is False
        assert read == [f"line {number}\n" for number in range(5)]


@pytest.mark.parametrize("section", ["log", "summary", "files"])
async def test_D50_every_section_of_running_work_is_followed_by_a_call_that_waits(
    api: FakeDaemonApi, home: Home, section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_module, "MAX_WAIT_SECONDS", 0.05)
    async with connected(api, home) as client:
        found = same_facts(await client.call_tool("delegate", WORK))["delegation_id"]
        await api.output(found, "some line\n")
        asked = {"delegation_id": found, "section": section}
        answer = await obey(client, same_facts(await client.call_tool("delegate_output", asked)))
        again = await obey(client, answer)
        assert again["still_running"] is True
        told = told_call(again["next_step"], "delegate_output")
        assert told["wait_seconds"] == 45
        assert told["section"] == section
        assert told["cursor"] == (again["next_cursor"] if section == "log" else "0")


async def test_D50_a_question_of_the_agent_is_answered_and_then_waited_for(api: FakeDaemonApi, home: Home) -> None:
    async with connected(api, home) as client:
        found = same_facts(await client.call_tool("delegate", WORK))["delegation_id"]
        await api.change(
            found,
            state=DelegationState.RUNNING,
            condition=ConditionView(kind="waiting_for_answer", detail="Which one?"),
        )
        answer = same_facts(await client.call_tool("delegate_output", {"delegation_id": found}))
        assert told_call(answer["next_step"], "delegate_output")["cursor"] == answer["next_cursor"]


async def test_D50_a_long_log_of_finished_work_is_read_on_to_its_end(api: FakeDaemonApi, home: Home) -> None:
    async with connected(api, home) as client:
        answer = same_facts(await client.call_tool("delegate", WORK))
        for number in range(30):
            await api.output(answer["delegation_id"], f"{number} " + "x" * 1_000 + "\n")
        await api.finish(answer["delegation_id"])
        answer = facts(await client.call_tool("delegate_output", {"delegation_id": answer["delegation_id"]}))
        read = answer["from_peer"]["text"]
        while answer["more"]:
            answer = await obey(client, answer)
            read += answer["from_peer"]["text"]
        assert [line.split()[0] for line in read.splitlines()] == [str(number) for number in range(30)]
        assert "section='patch'" in answer["next_step"]


async def test_D50_watch_tells_its_own_cursor(api: FakeDaemonApi, home: Home) -> None:
    talk = FakeRooms()
    async with connected(api, home, talk=talk) as client:
        answer = same_facts(await client.call_tool("watch", {}))
        assert told_call(answer["next_step"], "watch") == {"cursor": answer["next_cursor"], "wait_seconds": 45}


# Cancelling


async def test_D51_cancelling_a_waiting_delegate_ends_the_lease_that_it_began(api: FakeDaemonApi, home: Home) -> None:
    async with served(api, home), raw_host(home) as host:
        await host.hello()
        await host.send(call(7, "delegate", **WORK, background=False))
        await until(lambda: bool(api.delegations))
        await host.send(cancelled(7))
        await until(lambda: bool(api.cancelled))
        assert api.cancelled == list(api.delegations)
        # It is not answered, and the connection goes on.
        assert (await host.call(8, "directory"))["result"]["isError"] is False


async def test_D51_what_an_earlier_call_began_goes_on(api: FakeDaemonApi, home: Home) -> None:
    async with served(api, home), raw_host(home) as host:
        await host.hello()
        keyed = {**WORK, "idempotency_key": "one"}
        first = (await host.call(7, "delegate", **keyed))["result"]["structuredContent"]
        await anyio.sleep(0.002)  # a time has milliseconds
        for number, said in enumerate(
            (
                {**keyed, "background": False},
                {"delegation_id": first["delegation_id"], "ttl_seconds": 60, "background": False},
                {"delegation_id": first["delegation_id"], "prompt": "And now?", "background": False},
            ),
            8,
        ):
            await host.send(call(number, "delegate", **said))
            await until(lambda: len(api.requests) == 2)  # the retry has come that far, and waits
            await host.call(number + 20, "directory")
            await host.send(cancelled(number))
            await host.call(number + 40, "directory")
        assert api.cancelled == []
        assert list(api.delegations) == [first["delegation_id"]]


async def test_D51_a_host_that_goes_away_ends_nothing(api: FakeDaemonApi, home: Home) -> None:
    async with served(api, home) as face:
        async with raw_host(home) as host:
            await host.hello()
            await host.send(call(7, "delegate", **WORK, background=False))
            await until(lambda: bool(api.delegations))
        while face.sessions:
            await anyio.sleep(0.01)
        assert api.cancelled == []


async def test_D51_a_call_cut_off_while_the_delegation_is_recorded_ends_it_too(
    api: FakeDaemonApi, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = anyio.Event(), anyio.Event()
    create = api.create_delegation

    async def slow(*args: Any, **options: Any) -> Any:
        begun.set()
        await may_go_on.wait()
        return await create(*args, **options)

    monkeypatch.setattr(api, "create_delegation", slow)
    monkeypatch.setattr(begun_calls, "RECORD_SECONDS", 20)
    async with served(api, home), raw_host(home) as host:
        await host.hello()
        await host.send(call(7, "delegate", **WORK))
        await begun.wait()
        await host.send(cancelled(7))
        await host.call(8, "directory")
        may_go_on.set()
        await until(lambda: bool(api.cancelled))
        assert api.cancelled == list(api.delegations)


def cancelled(request_id: int) -> dict[str, object]:
    """Return what a host sends when its user presses Esc."""
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}


async def until(holds: Callable[[], bool]) -> None:
    """Wait until the daemon has come that far."""
    with anyio.fail_after(20):
        while not holds():
            await anyio.sleep(0.01)


# Lists


async def test_D52_no_notice_of_changed_lists_is_promised(api: FakeDaemonApi, home: Home, mode: str) -> None:
    async with connected(api, home, mode) as client:
        capabilities = client.server_capabilities
        assert capabilities.resources is not None
        assert capabilities.tools is not None
        assert not capabilities.resources.list_changed
        assert not capabilities.tools.list_changed
        assert capabilities.resources.subscribe


async def test_D53_every_delegation_is_found_by_resources_and_by_the_directory(
    api: FakeDaemonApi, home: Home, mode: str
) -> None:
    async with connected(api, home, mode) as client:
        begun = [
            facts(await client.call_tool("delegate", {**WORK, "prompt": f"Number {number}."}))["delegation_id"]
            for number in range(120)
        ]
        listed: list[str] = []
        page = await client.list_resources()
        while True:
            listed += [one.name for one in page.resources if str(one.uri).startswith("sublet://delegations/")]
            if page.next_cursor is None:
                break
            page = await client.list_resources(cursor=page.next_cursor)
        assert listed == begun[::-1]
        told: list[str] = []
        answer = same_facts(await client.call_tool("directory", {}))
        while True:
            told += [one["delegation_id"] for one in answer["delegations"]]
            if "next_cursor" not in answer:
                break
            assert told_call(answer["next_step"], "directory") == {"cursor": answer["next_cursor"]}
            answer = await obey(client, answer, "directory")
        assert told == begun[::-1]


@pytest.mark.parametrize("cursor", ["", ":", "x", "../:1", "dlg_1", ":-1", ":9999999999", "dlg_nope:"])
async def test_D53_a_cursor_that_no_page_gave_is_invalid(
    api: FakeDaemonApi, home: Home, mode: str, cursor: str
) -> None:
    async with connected(api, home, mode) as client:
        with pytest.raises(MCPError) as caught:
            await client.list_resources(cursor=cursor)
    assert caught.value.code == -32602


async def test_the_list_of_tools_is_small(api: FakeDaemonApi, home: Home, mode: str) -> None:
    async with connected(api, home, mode) as client:
        listed = await client.list_tools()
    assert len(listed.model_dump_json(by_alias=True, exclude_none=True)) <= 25_000
