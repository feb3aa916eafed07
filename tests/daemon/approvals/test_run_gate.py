"""No token, no call; one exact call, so often, so long; and only a person gives one (SuperAgent 6.2, DESIGN 7, 9)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey

from sublet.daemon.api.approval_statements import approve_statement, issue_statement
from sublet.daemon.api.approvals import (
    ApproveRequest,
    DenyApproval,
    ForgetApprover,
    IssueGrant,
    ListApprovals,
    ListGrants,
    OneApproval,
    OneGrant,
    PassphraseApproval,
    Terms,
)
from sublet.daemon.approvals import run_gate
from sublet.daemon.approvals.grant_store import UNKNOWN_OUTCOME, Called
from sublet.daemon.approvals.questions import MAX_PENDING_PER_AGENT, QuestionOrigin, Questions
from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.grants import Call, arguments_digest, canonical_arguments
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.canonical import JsonValue
from sublet.protocol.chain import Chain
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKeys
from sublet.protocol.statement_signing import sign_statement
from sublet.supervisor.tool_gate import ToolCall, Verdict
from support.approvals import AGENT, APPROVAL, DAEMON, HUMAN, PASSPHRASE, Clock, Desk, call, desk, setting
from support.budgets import examples
from support.decisions import a_record

pytestmark = pytest.mark.anyio

DENY: dict[str, JsonValue] = {**APPROVAL, "id": "never", "effect": "deny", "resource": "file.delete"}


async def given_grant(
    side: Desk, key: SigningKey, *, agent: str = "coder", tool: str = "shell.exec", terms: Terms | None = None
) -> str:
    """Issue a grant for ``call()`` as a person does, and return its id."""
    terms = terms or Terms()
    arguments: dict[str, JsonValue] | None = None if terms.any_arguments else dict(call().arguments)
    request = IssueGrant(agent=agent, tool=tool, arguments=arguments, terms=terms)
    signed = sign_statement(issue_statement(DAEMON, request), key)
    return (await side.service.issue_grant(request.model_copy(update={"signed": signed}), HUMAN)).id


def asking() -> QuestionOrigin:
    return QuestionOrigin(None, EventKeys(), a_record(AGENT, Action.TOOL_CALL, Resource("shell.exec")))


def wanted(scope: str = "ses_1") -> Call:
    canonical = canonical_arguments(call().arguments)
    return Call(
        "coder", "shell.exec", arguments_digest(canonical), tool_resource("shell.exec", call().arguments), scope
    )


async def test_what_policy_allows_is_journalled_with_its_cause_and_its_end(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        gate = side.gate()
        assert (await gate.ask(call("file.read", path="a"))).allowed
        await gate.ended(call("file.read", path="a"), result={"bytes": 3})
        events = (await side.journal.events.events_after(0)).events
        assert [str(event.kind) for event in events] == ["tool_call", "tool_result"]
        assert (events[0].keys.agent_id, events[0].keys.request_id) == ("coder", "req_1")
        assert events[1].keys.causation_id == events[0].seq
        assert side.audit.entries == [], "what only reads is an event of its run, and no entry of the log"


async def test_an_effect_has_its_outcome_in_the_audit_log(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        gate = side.gate()
        assert (await gate.ask(call())).allowed
        await gate.ended(call(), error="exit status 2")
        kinds = [kind for kind, _ in side.audit.entries]
        assert kinds == ["decision", "outcome"]
        assert side.audit.entries[0][1]["digest"] == wanted().digest
        assert side.audit.entries[1][1] == {"of": 1, "outcome": "failed", "error": "exit status 2"}
        assert (await side.kinds())[-1] == "tool_error"


async def test_a_read_only_lease_has_no_writing_tool(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        key = await side.make_approver()
        await given_grant(side, key, tool="file.write", terms=Terms(any_arguments=True))
        gate = side.gate(access_mode="ro")
        verdict = await gate.ask(ToolCall("file.write", {"path": "workspace/a"}, "c1", ("workspace/a",)))
        assert (verdict.allowed, verdict.rule) == (False, "limits.read_only")
        assert "policy_rejected" in await side.kinds()


async def test_a_missing_token_is_never_issued_by_itself(tmp_path: Path) -> None:
    """C.3: the other implementation issued one where none was given."""
    async with desk(tmp_path, [APPROVAL]) as side:
        verdict = await side.gate().ask(call())
        assert not verdict.allowed
        assert "approver init" in verdict.hint
        assert await side.grants.list() == []
        await side.make_approver()
        refused = await side.gate(seconds=0.05).ask(call())
        assert not refused.allowed
        assert await side.grants.list() == []


async def test_approval_reaches_a_person_and_her_yes_is_for_one_use(tmp_path: Path) -> None:
    async with desk(tmp_path, [APPROVAL]) as side:
        key = await side.make_approver()
        verdicts: list[Verdict] = []
        told: list[str | None] = []
        gate = side.gate(waiting=told.append)

        async def ask() -> None:
            verdicts.append(await gate.ask(call()))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            asked = await side.asked()
            assert asked.waits
            assert asked.shown == 'shell.exec {"command":"make deploy"}'
            assert not asked.truncated
            await side.approve(key, asked)
        assert verdicts[0].allowed
        assert told[0] is not None
        assert told[-1] is None
        assert "approval_required" in await side.kinds()
        await gate.ended(call())
        [grant] = await side.service.list_grants(ListGrants(), HUMAN)
        assert (grant.state, grant.remaining_uses, grant.outcomes) == ("used up", 0, ["done"])
        assert not (await side.gate(seconds=0.05).ask(call(call_id="c2"))).allowed


async def test_a_denied_call_is_refused_and_needs_no_key_to_be_denied(tmp_path: Path) -> None:
    async with desk(tmp_path, [APPROVAL]) as side:
        await side.make_approver()
        verdicts: list[Verdict] = []

        async def ask() -> None:
            verdicts.append(await side.gate().ask(call()))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await side.service.deny_approval(DenyApproval(approval_id=(await side.asked()).id), HUMAN)
        assert not verdicts[0].allowed
        assert "denied" in verdicts[0].reason


async def test_the_agent_itself_can_not_approve(tmp_path: Path) -> None:
    """An agent under the same user reaches the control socket, but has neither key nor passphrase."""
    async with desk(tmp_path, [APPROVAL]) as side:
        await side.make_approver()
        verdicts: list[Verdict] = []

        async def ask() -> None:
            verdicts.append(await side.gate().ask(call()))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            asked = await side.asked()
            own = SigningKey.generate()
            for attempt in (
                lambda: side.approve(own, asked),
                lambda: side.service.set_approver(setting(own, own), HUMAN),
                lambda: side.service.forget_approver(ForgetApprover(), HUMAN),
                lambda: given_grant(side, own),
                lambda: side.service.issue_grant(
                    IssueGrant(agent="coder", tool="shell.exec", arguments={"command": "make deploy"}), HUMAN
                ),
                lambda: side.service.approve_by_passphrase(
                    PassphraseApproval(approval_id=asked.id, passphrase="a guess at it"), HUMAN
                ),
            ):
                with pytest.raises(SubletError) as caught:
                    await attempt()
                assert caught.value.code in {LocalCode.APPROVAL_INVALID, LocalCode.PASSPHRASE_WRONG}
            await side.service.deny_approval(DenyApproval(approval_id=asked.id), HUMAN)
        assert not verdicts[0].allowed
        assert await side.grants.list() == []


async def test_a_signature_is_for_one_call_one_decision_and_one_time(tmp_path: Path) -> None:
    async with desk(tmp_path, [APPROVAL]) as side:
        key = await side.make_approver()
        async with anyio.create_task_group() as group:
            group.start_soon(side.gate().ask, call())
            asked = await side.asked()
            signed = sign_statement(approve_statement(DAEMON, asked, Terms()), key)
            for change in ({"digest": "0" * 64}, {"max_uses": 5}, {"daemon": "node-other"}, {"at": 1}):
                other = signed.model_copy(update={"statement": signed.statement.model_copy(update=change)})
                with pytest.raises(SubletError) as caught:
                    await side.service.approve(ApproveRequest(approval_id=asked.id, signed=other), HUMAN)
                assert caught.value.code is LocalCode.APPROVAL_INVALID
            await side.service.approve(ApproveRequest(approval_id=asked.id, signed=signed), HUMAN)
        with pytest.raises(SubletError) as caught:
            await side.service.approve(ApproveRequest(approval_id=asked.id, signed=signed), HUMAN)
        assert caught.value.code is LocalCode.CONFLICT


async def test_a_passphrase_approves_once_and_is_nowhere_afterwards(tmp_path: Path) -> None:
    async with desk(tmp_path, [APPROVAL]) as side:
        await side.make_approver()
        async with anyio.create_task_group() as group:
            group.start_soon(side.gate().ask, call())
            asked = await side.asked()
            done = await side.service.approve_by_passphrase(
                PassphraseApproval(approval_id=asked.id, passphrase=PASSPHRASE), HUMAN
            )
        assert done.state == "approved"
        kept = str((await side.journal.events.events_after(0, limit=500)).events) + str(side.audit.entries)
        assert PASSPHRASE not in kept
    assert all(PASSPHRASE.encode() not in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())


async def test_a_grant_fits_its_agent_tool_and_arguments_only(tmp_path: Path) -> None:
    """C.3: there, arguments were not bound."""
    async with desk(tmp_path, [APPROVAL]) as side:
        key = await side.make_approver()
        await given_grant(side, key)
        for gate, asked in (
            (side.gate(Subject("agent", "other"), seconds=0.02), call()),
            (side.gate(seconds=0.02), call(command="make destroy")),
            (side.gate(seconds=0.02), call("mcp.deploy.run", command="make deploy")),
        ):
            assert not (await gate.ask(asked)).allowed
        assert (await side.gate().ask(call("Bash"))).allowed, "the same tool under another name"


async def test_a_wider_grant_is_explicit_and_shown_as_such(tmp_path: Path) -> None:
    async with desk(tmp_path, [APPROVAL]) as side:
        key = await side.make_approver()
        await given_grant(side, key, terms=Terms(any_arguments=True, when={"args.command": "make *"}, max_uses=3))
        [view] = await side.service.list_grants(ListGrants(), HUMAN)
        assert view.widened
        assert view.when == {"args.command": "make *"}
        assert (await side.gate().ask(call(command="make anything"))).allowed
        assert not (await side.gate(seconds=0.02).ask(call(command="rm -rf ."))).allowed
        with pytest.raises(SubletError, match="exact arguments"):
            await side.service.issue_grant(IssueGrant(agent="coder", tool="shell.exec"), HUMAN)


async def test_no_grant_stands_above_a_deny(tmp_path: Path) -> None:
    there = ToolCall("file.delete", {"path": "a"}, "c1", ("workspace/a",))
    async with desk(tmp_path, [{**DENY, "when": {"path": {"within": "a"}}}]) as side:
        key = await side.make_approver()
        await given_grant(side, key, tool="file.delete", terms=Terms(any_arguments=True))
        verdict = await side.gate().ask(there)
        assert (verdict.allowed, verdict.rule) == (False, "never")
        assert (await side.grants.list())[0].remaining == 1


@pytest.mark.parametrize(
    ("agent", "tool", "terms", "said"),
    [
        ("nobody", "shell.exec", Terms(any_arguments=True), "there is no agent"),
        ("coder", "file.delete", Terms(any_arguments=True), "is denied file.delete whatever is granted"),
        ("coder", "rm", Terms(any_arguments=True), "is denied file.delete whatever is granted"),
        ("coder", "file.raed", Terms(any_arguments=True), "there is no such tool"),
        ("coder", "shell.*", Terms(any_arguments=True), "for one tool"),
        ("coder", "shell.exec", Terms(any_arguments=True, when={"path": "/etc/*"}), "relative to the lent directory"),
        ("coder", "shell.exec", Terms(any_arguments=True, when={"args.command": "a; *"}), "one simple command"),
    ],
)
async def test_a_grant_that_nobody_could_use_is_not_issued(
    tmp_path: Path, agent: str, tool: str, terms: Terms, said: str
) -> None:
    """D25: an agent or a tool of that name is there, and not denied anyway."""
    async with desk(tmp_path, [DENY]) as side:
        side.strangers.add("nobody")
        key = await side.make_approver()
        with pytest.raises(SubletError, match=said):
            await given_grant(side, key, agent=agent, tool=tool, terms=terms)
        assert await side.grants.list() == []


async def test_nothing_rides_along_with_a_granted_command(tmp_path: Path) -> None:
    async with desk(tmp_path, [APPROVAL]) as side:
        key = await side.make_approver()
        terms = Terms(any_arguments=True, when={"args.command": "make *"}, max_uses=5)
        await given_grant(side, key, terms=terms)
        assert not (await side.gate(seconds=0.02).ask(call(command="make x; other"))).allowed
        assert (await side.gate().ask(call(command="make x"))).allowed


async def test_a_grant_is_over_on_time_whoever_looks(tmp_path: Path) -> None:
    clock = Clock()
    async with desk(tmp_path, [APPROVAL], clock) as side:
        key = await side.make_approver()
        await given_grant(side, key, terms=Terms(ttl_seconds=60))
        clock.ahead = 61
        [view] = await side.service.list_grants(ListGrants(), HUMAN)
        assert view.state == "expired"
        assert not (await side.gate(seconds=0.02).ask(call())).allowed


@pytest.mark.parametrize(
    ("ahead", "slept", "boot", "state"),
    [
        (0, 0, "first", "usable"),
        (61, 0, "first", "expired"),  # set forward: it is shorter
        (-3600, 0, "first", "usable"),  # set back before its time is over
        (-3600, 61, "first", "expired"),  # set back: it is no longer for that
        (0, 61, "first", "expired"),  # the date stood still, such as on a machine that was suspended
        (0, 61, "second", "usable"),  # restarted: only the date is left
        (61, 0, "second", "expired"),
        (-3600, 0, "second", "expired"),  # before it was issued, which can't be
    ],
)
async def test_no_clock_that_is_set_lengthens_a_grant(
    tmp_path: Path, ahead: float, slept: float, boot: str, state: str
) -> None:
    clock = Clock()
    key = SigningKey.generate()
    async with desk(tmp_path, [APPROVAL], clock) as side:
        await side.make_approver(key)
        await given_grant(side, key, terms=Terms(ttl_seconds=60))
    async with desk(tmp_path, [APPROVAL], clock) as side:
        clock.ahead, clock.slept, clock.boot = ahead, slept, boot
        [view] = await side.service.list_grants(ListGrants(), HUMAN)
        assert view.state == state
        assert view.remaining_seconds <= 60
        assert len(await side.service.list_grants(ListGrants(usable=True), HUMAN)) == (state == "usable")
        assert (await side.gate(seconds=0.02).ask(call())).allowed == (state == "usable")


async def test_a_revoked_grant_is_worth_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path, [APPROVAL]) as side:
        grant = await given_grant(side, await side.make_approver())
        assert (await side.service.revoke_grant(OneGrant(grant_id=grant), HUMAN)).state == "revoked"
        assert (await side.service.revoke_grant(OneGrant(grant_id=grant), HUMAN)).state == "revoked"
        assert not (await side.gate(seconds=0.02).ask(call())).allowed


async def test_grants_and_questions_survive_a_restart(tmp_path: Path) -> None:
    """C.3: there, they were in memory only."""
    key = SigningKey.generate()
    async with desk(tmp_path, [APPROVAL]) as side:
        await side.make_approver(key)
        await given_grant(side, key)
        other = canonical_arguments({"command": "make other"})
        question = Call("coder", "shell.exec", arguments_digest(other), Resource("shell.exec"), "ses_1")
        await side.questions.ask(question, other, {}, asking(), until=side.clock() + 600)
    async with desk(tmp_path, [APPROVAL]) as side:
        assert (await side.gate().ask(call())).allowed
        [asked] = await side.service.list_approvals(ListApprovals(), HUMAN)
        assert not asked.waits
        await side.approve(key, asked)
        assert (await side.gate().ask(call(command="make other"))).allowed


async def test_a_crash_between_use_and_effect_is_told_and_the_use_is_gone(tmp_path: Path) -> None:
    key = SigningKey.generate()
    async with desk(tmp_path, [APPROVAL]) as side:
        await side.make_approver(key)
        await given_grant(side, key)
        assert (await side.gate().ask(call())).allowed
    async with desk(tmp_path, [APPROVAL]) as side:
        assert await side.grants.settle() == 1
        assert await side.grants.settle() == 0
        [view] = await side.service.list_grants(ListGrants(), HUMAN)
        assert (view.remaining_uses, view.outcomes) == (0, [UNKNOWN_OUTCOME])
        events = (await side.journal.events.events_after(0, limit=500)).events
        called = next(event for event in events if event.kind == "tool_call")
        assert events[-1].kind == "tool_error"
        assert events[-1].keys.causation_id == called.seq
        assert events[-1].data["error"] == UNKNOWN_OUTCOME


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(uses=st.integers(1, 6), callers=st.integers(1, 12))
async def test_concurrent_calls_never_spend_a_use_twice(
    tmp_path_factory: pytest.TempPathFactory, uses: int, callers: int
) -> None:
    async with desk(tmp_path_factory.mktemp("spend"), [APPROVAL]) as side:
        await given_grant(side, await side.make_approver(), terms=Terms(max_uses=uses))
        spent: list[bool] = []

        async def spend(number: int) -> None:
            spent.append(await side.grants.consume(wanted(), Called(f"c{number}", None, {}, EventKeys())) is not None)

        async with anyio.create_task_group() as group:
            for number in range(callers):
                group.start_soon(spend, number)
        assert sum(spent) == min(uses, callers)
        assert (await side.kinds()).count("tool_call") == min(uses, callers)


async def test_the_same_call_is_one_question_and_questions_are_bounded(tmp_path: Path) -> None:
    async with desk(tmp_path, [APPROVAL]) as side:
        await side.make_approver()
        async with anyio.create_task_group() as group:
            for number in range(MAX_PENDING_PER_AGENT):
                group.start_soon(side.gate().ask, call(command=f"make {number}"))
            group.start_soon(side.gate().ask, call(command="make 0", call_id="again"))
            while len(await side.service.list_approvals(ListApprovals(), HUMAN)) < MAX_PENDING_PER_AGENT:
                await anyio.lowlevel.checkpoint()
            verdict = await side.gate().ask(call(command="one too many"))
            assert not verdict.allowed
            assert "wait for a person already" in verdict.reason
            assert len(await side.service.list_approvals(ListApprovals(), HUMAN)) == MAX_PENDING_PER_AGENT
            group.cancel_scope.cancel()
        assert await side.service.list_approvals(ListApprovals(), HUMAN) == [], (
            "cancelling a call takes its question back"
        )
        states = {one.state for one in await side.service.list_approvals(ListApprovals(pending=False), HUMAN)}
        assert states == {"withdrawn"}


async def test_a_flood_of_questions_is_bounded_and_hides_no_other_agent_and_loses_none(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:

        async def ask(agent: str, number: int) -> None:
            canonical = canonical_arguments({"n": number})
            asked = Call(agent, "shell.exec", arguments_digest(canonical), Resource("shell.exec"), "ses_1")
            await side.questions.ask(asked, canonical, {}, asking(), until=side.clock() + 600)

        flooding = [f"flood{number}" for number in range(20)]
        for number in range(2 * MAX_PENDING_PER_AGENT):
            for agent in flooding:
                if number < MAX_PENDING_PER_AGENT:
                    await ask(agent, number)
                    continue
                with pytest.raises(SubletError, match=f"calls of {agent} wait for a person already"):
                    await ask(agent, number)
        await ask("quiet", 0)
        shown = await side.questions.list(limit=len(flooding) + 1)
        assert {one.agent for one in shown} == {*flooding, "quiet"}, "each agent has its turn on the first page"
        assert all(json.loads(one.arguments) == {"n": 0} for one in shown), "the oldest of each"
        everything = await side.questions.list(limit=1_000)
        assert len(everything) == len(flooding) * MAX_PENDING_PER_AGENT + 1


async def test_a_long_call_says_that_it_is_cut_and_is_complete_where_asked_for(tmp_path: Path) -> None:
    async with desk(tmp_path, [APPROVAL]) as side:
        await side.make_approver()
        text = "x" * 10_000 + "\u202e hidden end"
        async with anyio.create_task_group() as group:
            group.start_soon(side.gate().ask, call(command=text))
            asked = await side.asked()
            assert asked.truncated
            whole = await side.service.get_approval(OneApproval(approval_id=asked.id), HUMAN)
            assert whole.arguments is not None
            assert whole.arguments.isascii()
            assert arguments_digest(whole.arguments) == asked.digest
            group.cancel_scope.cancel()


@pytest.mark.parametrize("arguments", [{"n": float("nan")}, {"deep": eval("[" * 40 + "]" * 40)}, {"b": "x" * 300_000}])
async def test_what_nobody_could_decide_on_is_refused(tmp_path: Path, arguments: dict[str, JsonValue]) -> None:
    async with desk(tmp_path) as side:
        verdict = await side.gate().ask(ToolCall("shell.exec", arguments, "c1"))
        assert (verdict.allowed, verdict.rule) == (False, "limits.arguments")


async def test_another_key_voids_all_grants_and_a_reset_is_told(tmp_path: Path) -> None:
    async with desk(tmp_path, [APPROVAL]) as side:
        old = await side.make_approver()
        await given_grant(side, old, terms=Terms(max_uses=5))
        new = SigningKey.generate()
        await side.service.set_approver(setting(new, old), HUMAN)
        assert not (await side.gate(seconds=0.02).ask(call())).allowed
        await given_grant(side, new)
        view = await side.service.forget_approver(ForgetApprover(reset=True), HUMAN)
        assert view.reset_at is not None
        assert [grant.state for grant in await side.service.list_grants(ListGrants(), HUMAN)] == ["revoked", "revoked"]
        assert (await side.kinds()).count("approver_changed") == 3
        await side.make_approver()
        assert side.approver.pinned.reset_at is not None, "a new key does not hide that there was a reset"


@pytest.mark.parametrize(
    ("issuer", "agent", "nests"),
    [
        ("coder", "coder", {}),
        ("Coder", "coder", {}),
        ("team", "coder", {"team": ["coder"]}),
        ("coder", "team", {"team": ["coder"]}),
        ("boss", "coder", {"boss": ["team"], "team": ["coder"]}),
        ("c\u043eder", "coder", {}),
    ],
)
async def test_no_agent_grants_itself_by_any_way_whatever_the_rules_say(
    tmp_path: Path, issuer: str, agent: str, nests: dict[str, list[str]]
) -> None:
    """C.3: there, the model could call permission.grant itself."""
    issue: dict[str, JsonValue] = {
        "id": "issuers", "effect": "allow", "action": "grant.issue", "subject": {"kind": "agent"},
        "resource": "*",
    }  # fmt: skip
    async with desk(tmp_path, [APPROVAL, issue]) as side:
        side.nests = dict(nests)
        request = IssueGrant(agent=agent, tool="shell.exec", arguments={"command": "make deploy"})
        with pytest.raises(SubletError) as caught:
            await side.service.issue_grant(request, Subject("agent", issuer))
        assert caught.value.code is LocalCode.POLICY_DENIED
        assert await side.grants.list() == []


async def test_an_issuer_that_policy_names_may_grant_what_it_names(tmp_path: Path) -> None:
    issue: dict[str, JsonValue] = {
        "id": "issuers", "effect": "allow", "action": "grant.issue", "subject": {"kind": "agent", "name": "lead"},
        "resource": "shell.exec", "when": {"agent": "coder"},
    }  # fmt: skip
    async with desk(tmp_path, [APPROVAL, issue]) as side:
        request = IssueGrant(agent="coder", tool="shell.exec", arguments={"command": "make deploy"})
        for other in (Subject("agent", "helper"), Subject("mcp"), Subject("peer", "bob"), Subject("a2a", "x")):
            with pytest.raises(SubletError) as caught:
                await side.service.issue_grant(request, other)
            assert caught.value.code is LocalCode.POLICY_DENIED
        view = await side.service.issue_grant(request, Subject("agent", "lead"))
        assert view.issued_by == "agent lead"
        assert (await side.gate(AGENT).ask(call())).allowed


async def test_whoever_has_sent_the_agent_does_not_grant_what_it_waits_for(tmp_path: Path) -> None:
    issue: dict[str, JsonValue] = {
        "id": "issuers", "effect": "allow", "action": "grant.issue", "subject": {"kind": "agent"},
        "resource": "shell.exec",
    }  # fmt: skip
    async with desk(tmp_path, [APPROVAL, issue]) as side, anyio.create_task_group() as group:
        await side.make_approver()
        group.start_soon(side.gate(chain=Chain(("lead@node-x",))).ask, call())
        await side.asked()
        request = IssueGrant(agent="coder", tool="shell.exec", arguments={"command": "make deploy"})
        with pytest.raises(SubletError, match="grant itself"):
            await side.service.issue_grant(request, Subject("agent", "lead"))
        group.cancel_scope.cancel()


async def test_two_calls_under_one_id_have_an_end_each(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        gate = side.gate()
        first, second = ToolCall("file.read", {"path": "a"}, "c1"), ToolCall("file.list", {"path": "b"}, "c1")
        assert (await gate.ask(first)).allowed
        assert (await gate.ask(second)).allowed
        await gate.ended(second)
        events = (await side.journal.events.events_after(0)).events
        ends = [(str(e.kind), e.data["tool"], e.keys.causation_id) for e in events if e.keys.causation_id]
        calls = [event.seq for event in events if str(event.kind) == "tool_call"]
        assert ends == [("tool_error", "file.read", calls[0]), ("tool_result", "file.list", calls[1])]


async def test_the_end_of_a_call_that_is_forgotten_is_told_of_that_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_gate, "MAX_OPEN_CALLS", 1)
    async with desk(tmp_path) as side:
        gate = side.gate()
        assert (await gate.ask(ToolCall("file.read", {"path": "a"}, "c1"))).allowed
        assert (await gate.ask(ToolCall("file.list", {"path": "b"}, "c2"))).allowed
        last = (await side.journal.events.events_after(0)).events[-1]
        assert (str(last.kind), last.data["tool"], last.data["callId"]) == ("tool_error", "file.read", "c1")


async def test_a_grant_that_was_issued_before_an_errand_is_not_for_the_errand_of_its_issuer(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        grant = side.grants.make(
            agent="coder",
            tool="shell.exec",
            digest=wanted().digest,
            issued_by="agent boss",
            ttl_seconds=60,
            max_uses=1,
        )
        await side.grants.issue(grant)
        own = replace(wanted(), callers=("other@n-1", "Boss@n-1"))
        assert await side.grants.consume(own, Called("c1", None, {}, EventKeys())) is None
        assert await side.grants.consume(wanted(), Called("c2", None, {}, EventKeys())) is not None


async def test_a_question_that_is_asked_again_while_it_is_taken_back_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk(tmp_path) as side:
        approval = await side.questions.ask(wanted(), "{}", {}, asking(), until=side.clock() + 60)
        real = Questions._close

        async def close(questions: Questions, approval_id: str) -> None:
            group.start_soon(questions.wait, approval)
            while not questions.waits(approval_id):
                await anyio.lowlevel.checkpoint()
            await real(questions, approval_id)
            monkeypatch.setattr(Questions, "_close", real)

        monkeypatch.setattr(Questions, "_close", close)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                with anyio.CancelScope() as first:
                    first.cancel()
                    await side.questions.wait(approval)
                assert (await side.questions.find(approval.id)).state == "pending"
                await side.questions.deny(approval.id, "human")
