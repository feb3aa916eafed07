"""Calls that wait for a person, told to her by the MCP host that made them: SDK client, real relay and store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.types import (
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ListRootsResult,
    Root,
)
from nacl.signing import SigningKey
from pydantic import FileUrl

from sublet.daemon.api.approvals import ApprovalView, DenyApproval, ListApprovals, ListGrants
from sublet.daemon.approvals.call_gate import CallGate
from sublet.daemon.approvals.gate_parts import GateParts
from sublet.daemon.config.paths import Home
from sublet.mcp_server import asking, tool_calls
from sublet.mcp_server.session import HostSession
from sublet.protocol.canonical import JsonValue
from support.approvals import HUMAN, Desk, desk
from support.fake_daemon_api import FakeDaemonApi
from support.mcp_face import raw_host, served, server_of
from support.tool_answers import text_of

pytestmark = pytest.mark.anyio

WORK = {"workspace_dir": "/srv/projects/app", "peer": "bob", "prompt": "Run the tests."}
ASK: dict[str, JsonValue] = {
    "id": "ask-first",
    "effect": "approval",
    "action": "tool.call",
    "subject": {"kind": "mcp"},
    "resource": "sublet.delegate",
    "reason": "lending is decided by a person",
}
Answering = Callable[[ElicitRequestParams], Awaitable[ElicitResult]]


class Scene:
    """A face over a real gate, whose approver's key is at hand."""

    def __init__(self, side: Desk, key: SigningKey, home: Home) -> None:
        self.side = side
        self.key = key
        self.home = home
        self.shown: list[ElicitRequestParams] = []

    @asynccontextmanager
    async def host(self, mode: str, answering: Answering, **options: Any) -> AsyncIterator[Client]:
        async def asked(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            self.shown.append(params)
            return await answering(params)

        async with Client(server_of(self.home), mode=mode, elicitation_callback=asked, **options) as client:
            yield client

    async def pending(self) -> list[ApprovalView]:
        return await self.side.service.list_approvals(ListApprovals(), HUMAN)

    async def approve(self, params: ElicitRequestParams) -> ElicitResult:
        """Approve by the key, as the command or the page does, and then say yes."""
        await self.side.approve(self.key, (await self.pending())[0])
        return ElicitResult(action="accept", content={})


@asynccontextmanager
async def scene(
    tmp_path: Path, home: Home, api: FakeDaemonApi, page: str | None = None, rule: Mapping[str, JsonValue] = ASK
) -> AsyncIterator[Scene]:
    async with desk(tmp_path, [rule]) as side:
        key = await side.make_approver()
        parts = GateParts(side.gatekeeper, side.journal, side.grants, side.questions, side.approver, side.clock)
        async with served(api, home, CallGate(parts), lambda: page):
            yield Scene(side, key, home)


async def says(action: str) -> ElicitResult:
    return ElicitResult(action=cast(Any, action), content={} if action == "accept" else None)


async def test_the_exact_call_is_shown_and_goes_on_once_the_key_has_signed(
    tmp_path: Path, home: Home, api: FakeDaemonApi, mode: str
) -> None:
    async def roots(context: ClientRequestContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl("file:///srv/projects"))])

    async with scene(tmp_path, home, api) as here:
        async with here.host(mode, here.approve, list_roots_callback=roots) as client:
            done = await client.call_tool("delegate", WORK)
            assert not done.is_error, text_of(done)
            assert api.callers[-1].roots == ("/srv/projects",)
        [shown] = here.shown
        # The SDK's client takes both modes; without a page it is the form.
        assert isinstance(shown, ElicitRequestFormParams)
        assert shown.requested_schema.get("properties") == {}, "a host and its agent read what is written into a form"
        [decided] = await here.side.service.list_approvals(ListApprovals(pending=False), HUMAN)
        assert decided.digest in shown.message
        for part in ("wants to call sublet.delegate", '"prompt":"Run the tests."', "lending is decided by a person"):
            assert part in shown.message
        assert f"sublet approvals approve {decided.id}" in shown.message
        assert "rule ask-first" in shown.message
        [grant] = await here.side.service.list_grants(ListGrants(), HUMAN)
        assert (grant.state, grant.outcomes, grant.agent) == ("used up", ["done"], decided.agent)
        assert {"approval_required", "tool_call", "tool_result"} <= set(await here.side.kinds())


async def test_a_yes_of_the_host_alone_is_no_approval(
    tmp_path: Path, home: Home, api: FakeDaemonApi, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_calls, "ANSWER_SECONDS", asking.MARGIN_SECONDS + 0.3)
    async with scene(tmp_path, home, api) as here, here.host(mode, lambda _: says("accept")) as client:
        for _ in range(2):
            refused = await client.call_tool("delegate", WORK)
            assert refused.is_error
            assert text_of(refused).startswith("APPROVAL_REQUIRED")
            assert f"sublet approvals approve {(await here.pending())[0].id}" in text_of(refused)
        assert api.requests == []
        assert len(await here.pending()) == 1, "the same call is one question"
        assert await here.side.service.list_grants(ListGrants(), HUMAN) == []
        await here.side.approve(here.key, (await here.pending())[0])
        assert not (await client.call_tool("delegate", WORK)).is_error


async def test_a_no_refuses_and_a_cancel_leaves_it_open(
    tmp_path: Path, home: Home, api: FakeDaemonApi, mode: str
) -> None:
    answers = ["cancel", "decline"]
    async with scene(tmp_path, home, api) as here:
        async with here.host(mode, lambda _: says(answers.pop(0))) as client:
            assert text_of(await client.call_tool("delegate", WORK)).startswith("APPROVAL_REQUIRED")
            [asked] = await here.pending()
            assert asked.waits
            refused = await client.call_tool("delegate", WORK)
            assert text_of(refused).startswith("POLICY_DENIED")
            assert "declined in the host" in text_of(refused)
        [asked] = await here.side.service.list_approvals(ListApprovals(pending=False), HUMAN)
        assert asked.state == "denied"
        assert (asked.decided_by or "").startswith("mcp:")
        assert api.requests == []


async def test_a_person_denies_elsewhere_while_the_host_shows_it(
    tmp_path: Path, home: Home, api: FakeDaemonApi, mode: str
) -> None:
    async with scene(tmp_path, home, api) as here:

        async def deny(params: ElicitRequestParams) -> ElicitResult:
            await here.side.service.deny_approval(DenyApproval(approval_id=(await here.pending())[0].id), HUMAN)
            if mode == "legacy":
                await anyio.sleep_forever()  # the question is taken back from the screen
            return ElicitResult(action="accept", content={})

        async with here.host(mode, deny) as client:
            refused = await client.call_tool("delegate", WORK)
        assert text_of(refused).startswith("POLICY_DENIED")
        assert "a person denied it" in text_of(refused)
        assert await here.pending() == []
        assert api.requests == []


async def test_nobody_answers_in_the_host_and_the_tool_tells_what_waits(
    tmp_path: Path, home: Home, api: FakeDaemonApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2025 only: on the 2026 era the host asks between two calls, and takes whatever time it likes."""
    monkeypatch.setattr(tool_calls, "ANSWER_SECONDS", asking.MARGIN_SECONDS + 0.3)

    async def silent(params: ElicitRequestParams) -> ElicitResult:
        await anyio.sleep_forever()
        raise AssertionError

    async with scene(tmp_path, home, api) as here, here.host("legacy", silent) as client:
        assert text_of(await client.call_tool("delegate", WORK)).startswith("APPROVAL_REQUIRED")
        assert len(await here.pending()) == 1


async def test_the_page_is_named_where_there_is_one(tmp_path: Path, home: Home, api: FakeDaemonApi, mode: str) -> None:
    async with scene(tmp_path, home, api, "http://127.0.0.1:8737/") as here:
        async with here.host(mode, here.approve) as client:
            assert not (await client.call_tool("delegate", WORK)).is_error
        [shown] = here.shown
        assert isinstance(shown, ElicitRequestURLParams)
        assert shown.url == "http://127.0.0.1:8737/#/approvals"
        assert '"prompt":"Run the tests."' in shown.message


async def test_a_host_that_asks_nobody_is_told_what_waits_and_how_to_approve(
    tmp_path: Path, home: Home, api: FakeDaemonApi, mode: str
) -> None:
    async with scene(tmp_path, home, api) as here, Client(server_of(home), mode=mode) as client:
        refused = text_of(await client.call_tool("delegate", WORK))
        [asked] = await here.pending()
        assert refused.startswith("APPROVAL_REQUIRED: sublet.delegate waits until a person approves this call")
        assert f"sublet approvals approve {asked.id}" in refused
        await here.side.approve(here.key, asked)
        assert not (await client.call_tool("delegate", WORK)).is_error
        assert text_of(await client.call_tool("delegate", WORK)).startswith("APPROVAL_REQUIRED"), "it was for one use"


async def test_only_the_host_that_calls_is_asked_and_only_it_may_go_on(
    tmp_path: Path, home: Home, api: FakeDaemonApi, mode: str
) -> None:
    async def never(params: ElicitRequestParams) -> ElicitResult:
        pytest.fail("another host's call was put to this one")

    async with scene(tmp_path, home, api) as here, Client(server_of(home), mode=mode) as asks:
        async with here.host(mode, never) as other:
            assert text_of(await asks.call_tool("delegate", WORK)).startswith("APPROVAL_REQUIRED")
            assert not (await other.call_tool("directory", {})).is_error
            assert here.shown == []
        await here.side.approve(here.key, (await here.pending())[0])
        # The same name and the same call: the approval is not for this connection.
        async with Client(server_of(home), mode=mode) as third:
            assert text_of(await third.call_tool("delegate", WORK)).startswith("APPROVAL_REQUIRED")
        assert not (await asks.call_tool("delegate", WORK)).is_error


async def test_a_host_that_is_gone_leaves_no_question(tmp_path: Path, home: Home, api: FakeDaemonApi) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "raw"}}
    hello["clientInfo"] = {"name": "raw", "version": "1"}
    async with scene(tmp_path, home, api) as here:
        async with raw_host(home) as host:
            await host.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
            await host.answer(1)
            await host.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
            params = {"name": "delegate", "arguments": WORK}
            await host.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})
            asked = await host.receive()
            assert asked["method"] == "elicitation/create"
            assert "mode" not in asked["params"] or asked["params"]["mode"] == "form"
            [pending] = await here.pending()
            assert pending.waits
        with anyio.fail_after(20):
            while await here.pending():
                await anyio.sleep(0.01)
        [closed] = await here.side.service.list_approvals(ListApprovals(pending=False), HUMAN)
        assert closed.state == "withdrawn"
        assert api.requests == []


async def test_without_an_approver_nobody_is_asked(tmp_path: Path, home: Home, api: FakeDaemonApi, mode: str) -> None:
    async with desk(tmp_path, [ASK]) as side:
        parts = GateParts(side.gatekeeper, side.journal, side.grants, side.questions, side.approver, side.clock)
        async with served(api, home, CallGate(parts)), Client(server_of(home), mode=mode) as client:
            assert text_of(await client.call_tool("delegate", WORK)).startswith("APPROVER_MISSING")


async def test_a_rule_can_deny_a_tool_to_hosts(tmp_path: Path, home: Home, api: FakeDaemonApi, mode: str) -> None:
    async with scene(tmp_path, home, api, rule={**ASK, "effect": "deny"}), Client(server_of(home), mode=mode) as client:
        refused = text_of(await client.call_tool("delegate", WORK))
        assert refused.startswith("POLICY_DENIED: lending is decided by a person")
        assert not (await client.call_tool("directory", {})).is_error
    assert api.requests == []


async def test_questions_that_are_decided_are_forgotten_and_open_ones_taken_back(
    tmp_path: Path, home: Home, api: FakeDaemonApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "MAX_WAITING", 2)
    monkeypatch.setattr(tool_calls, "ANSWER_SECONDS", asking.MARGIN_SECONDS + 0.1)
    kept: list[set[str]] = []
    remember = asking.HostQuestions._remember

    async def seen(self: asking.HostQuestions, session: HostSession, question_id: str) -> None:
        await remember(self, session, question_id)
        kept.append(set(session.waiting))

    monkeypatch.setattr(asking.HostQuestions, "_remember", seen)
    async with scene(tmp_path, home, api) as here:
        async with here.host("legacy", lambda _: says("cancel")) as client:
            for number in range(4):
                assert (await client.call_tool("delegate", {**WORK, "prompt": f"Work {number}."})).is_error
                if number < 3:
                    await here.side.service.deny_approval(DenyApproval(approval_id=(await here.pending())[0].id), HUMAN)
            [last] = await here.pending()
            assert last.id in kept[-1]
            assert len(kept[-1]) == 2
        with anyio.fail_after(20):
            while await here.pending():
                await anyio.sleep(0.01)
