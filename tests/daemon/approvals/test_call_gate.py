"""A call of a host or a person: nobody waits inside, an approval is used up once, and each call has its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey

from sublet.daemon.api.approvals import ListApprovals
from sublet.daemon.api.call_api import AskedCall, Begun, OpenQuestion
from sublet.daemon.approvals.call_gate import MAX_NAME_CHARS, CallGate, caller_key
from sublet.daemon.approvals.gate_parts import GateParts
from sublet.policy.config import parse
from sublet.policy.decision import Action, Subject
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from support.approvals import AGENT, HUMAN, Desk, desk

pytestmark = pytest.mark.anyio
HOST = Subject("mcp", "claude")
TOOL = "sublet.delegate"
ASK: dict[str, JsonValue] = {"id": "ask", "effect": "approval", "action": "tool.call", "resource": TOOL}
NEVER: dict[str, JsonValue] = {"id": "never", "effect": "deny", "action": "tool.call", "resource": "sublet.people"}


def gate(side: Desk) -> CallGate:
    return CallGate(GateParts(side.gatekeeper, side.journal, side.grants, side.questions, side.approver, side.clock))


def called(tool: str = TOOL, caller: Subject = HOST, **arguments: JsonValue) -> AskedCall:
    return AskedCall(caller, Action.TOOL_CALL, tool_resource(tool, arguments), tool, arguments, "host_1")


async def asked(side: Desk, call: AskedCall) -> OpenQuestion:
    found = await gate(side).question(call)
    assert found is not None
    return found


async def approve(side: Desk, key: SigningKey, question: OpenQuestion) -> None:
    [view] = [one for one in await side.service.list_approvals(ListApprovals(), HUMAN) if one.id == question.id]
    await side.approve(key, view)


async def test_what_policy_allows_asks_nobody_and_has_its_end_in_the_log(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        assert await gate(side).question(called()) is None
        begun = await gate(side).begin(called(), "there is none")
        assert begun.use is None
        await gate(side).ended(begun, None)
        assert [(kind, fields.get("outcome")) for kind, fields in side.audit.entries] == [
            ("decision", None),
            ("outcome", "done"),
        ]


async def test_a_call_that_waits_says_for_what_and_goes_through_once_it_is_approved(tmp_path: Path) -> None:
    async with desk(tmp_path, [ASK]) as side:
        key = await side.make_approver()
        with pytest.raises(SubletError) as waits:
            await gate(side).begin(called(peer="bob"), "there is none")
        assert waits.value.code is LocalCode.APPROVAL_REQUIRED
        question = await asked(side, called(peer="bob"))
        assert question.id in waits.value.message, "the same call is one question"
        assert await gate(side).decided(question.id, 0) == "pending"
        await approve(side, key, question)
        assert await gate(side).decided(question.id, 0) == "approved"
        assert await gate(side).question(called(peer="bob")) is None
        begun = await gate(side).begin(called(peer="bob"), "there is none")
        assert begun.use is not None
        await gate(side).ended(begun, None)
        assert (await side.kinds())[-2:] == ["tool_call", "tool_result"]
        [grant] = await side.grants.list()
        assert (grant.remaining, await side.grants.outcomes(grant.id)) == (0, ["done"])
        with pytest.raises(SubletError, match="waits until a person approves"):
            await gate(side).begin(called(peer="bob"), "there is none")


async def test_an_approval_is_for_these_arguments_and_this_caller(tmp_path: Path) -> None:
    async with desk(tmp_path, [ASK]) as side:
        key = await side.make_approver()
        await approve(side, key, await asked(side, called(peer="bob")))
        for other in (called(peer="carol"), called(caller=Subject("mcp", "cursor"), peer="bob")):
            with pytest.raises(SubletError) as waits:
                await gate(side).begin(other, "there is none")
            assert waits.value.code is LocalCode.APPROVAL_REQUIRED
        assert (await gate(side).begin(called(peer="bob"), "there is none")).use is not None


async def test_what_is_denied_is_no_question(tmp_path: Path) -> None:
    async with desk(tmp_path, [NEVER]) as side:
        assert await gate(side).question(called("sublet.people")) is None
        with pytest.raises(SubletError) as no:
            await gate(side).begin(called("sublet.people"), "there is none")
        assert no.value.code is LocalCode.POLICY_DENIED


async def test_a_hidden_tool_is_told_as_one_that_is_not_there(tmp_path: Path) -> None:
    async with desk(tmp_path, [{**NEVER, "hide": True}]) as side:
        assert gate(side).hides(HOST, "sublet.people")
        with pytest.raises(SubletError) as no:
            await gate(side).begin(called("sublet.people"), "no tool of that name")
        assert (no.value.code, no.value.message) == (LocalCode.NOT_FOUND, "no tool of that name")


async def test_nobody_is_asked_before_somebody_can_approve(tmp_path: Path) -> None:
    async with desk(tmp_path, [ASK]) as side:
        with pytest.raises(SubletError, match="approver"):
            await gate(side).question(called())


async def test_a_call_that_fails_says_so_of_its_use(tmp_path: Path) -> None:
    async with desk(tmp_path, [ASK]) as side:
        key = await side.make_approver()
        await approve(side, key, await asked(side, called()))
        begun = await gate(side).begin(called(), "there is none")
        await gate(side).ended(begun, "the peer\x1b[2J is gone")
        last = (await side.journal.events.events_after(0)).events[-1]
        assert str(last.kind) == "tool_error"
        assert last.keys.causation_id == begun.event
        assert "\x1b" not in str(last.data["error"])
        [grant] = await side.grants.list()
        assert await side.grants.outcomes(grant.id) == ["failed"]


async def test_a_rule_that_comes_between_ends_the_use_that_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk(tmp_path, [ASK]) as side:
        key = await side.make_approver()
        await approve(side, key, await asked(side, called()))
        consume = side.grants.consume

        async def and_then(*given: Any) -> Any:
            rules = [{**ASK, "id": "now-never", "effect": "deny"}]
            side.policy.use(Policy(Protected(tmp_path), parse({"version": 1, "global": rules})).prepare(()))
            return await consume(*given)

        monkeypatch.setattr(side.grants, "consume", and_then)
        with pytest.raises(SubletError) as no:
            await gate(side).begin(called(), "there is none")
        assert no.value.code is LocalCode.POLICY_DENIED
        [grant] = await side.grants.list()
        assert await side.grants.outcomes(grant.id) == ["failed"]
        assert "not done" in str((await side.journal.events.events_after(0)).events[-1].data["error"])


async def test_a_question_is_taken_back_or_denied_by_who_asked(tmp_path: Path) -> None:
    async with desk(tmp_path, [ASK]) as side:
        await side.make_approver()
        first = await asked(side, called(n=1))
        await gate(side).withdraw(first.id)
        assert await gate(side).decided(first.id, 0) == "withdrawn"
        second = await asked(side, called(n=2))
        await gate(side).withdraw(second.id, denied_by="human")
        assert await gate(side).decided(second.id, 0) == "denied"


async def test_the_end_of_what_was_never_begun_is_told_of_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        await gate(side).ended(Begun(), "x")
        assert (await side.kinds(), side.audit.entries) == ([], [])


def test_only_an_agent_has_a_key_that_can_be_an_id() -> None:
    assert caller_key(AGENT) == "coder"
    assert caller_key(HOST) == "mcp:claude"
    assert caller_key(HUMAN) == "human:"
    assert len(caller_key(Subject("mcp", "x" * 200))) == MAX_NAME_CHARS
