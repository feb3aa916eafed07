"""Policy is asked before an operation, and what it said is written down before anything is done."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sublet.daemon.governing import gatekeeper as gatekeepers
from sublet.daemon.governing.gatekeeper import MAX_AUDITED_VALUES, MAX_JOURNALLED_CHARS, Gatekeeper, looked_up, who
from sublet.policy.decision import Action, Resource, Subject, Value
from sublet.policy.recorded import DECIDED
from sublet.policy.request_rules import narrowing
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventKeys
from support.approvals import AGENT, HUMAN, Desk, desk
from support.decisions import KeptDecisions

pytestmark = pytest.mark.anyio
NOT_BOB: dict[str, JsonValue] = {
    "id": "not-bob",
    "effect": "deny",
    "action": ["delegation.create", "agent.message", "session.read"],
    "resource": "bob",
}
HIDDEN: dict[str, JsonValue] = {**NOT_BOB, "id": "no-such-bob", "hide": True}
NO_SHELL: dict[str, JsonValue] = {"id": "no-shell", "effect": "deny", "action": "tool.call", "resource": "shell.exec"}


async def events(side: Desk) -> list[Event]:
    return (await side.journal.events.events_after(0)).events


async def refused(side: Desk, action: Action, name: str, keys: EventKeys | None = None) -> SubletError:
    with pytest.raises(SubletError) as no:
        await side.gatekeeper.ask(HUMAN, action, name, keys=keys)
    return no.value


async def test_a_change_is_on_the_disk_before_it_may_be_made_and_a_look_is_nowhere(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        record = await side.gatekeeper.ask(HUMAN, Action.DELEGATION_CREATE, "bob", ttl_seconds=60)
        assert record.decision.allowed
        [(kind, fields)] = side.audit.entries
        assert (kind, fields["action"], fields["resource"]) == ("decision", "delegation.create", "bob")
        assert (fields["subject"], fields["attributes"]) == ("human", {"ttl_seconds": 60})
        assert side.audit.durable == {1}
        await side.gatekeeper.ask(HUMAN, Action.SESSION_READ, "s")
        assert len(side.audit.entries) == 1
        assert await events(side) == []


class FullDisk(KeptDecisions):
    """A log that takes nothing more."""

    async def add_durably(self, kind: str, fields: Mapping[str, JsonValue]) -> int:
        raise SubletError(LocalCode.UNAVAILABLE, "the disk is full")


async def test_what_the_log_does_not_take_is_not_allowed(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        gate = Gatekeeper(side.policy, side.journal, list, FullDisk())
        with pytest.raises(SubletError) as no:
            await gate.ask(HUMAN, Action.DELEGATION_CREATE, "bob")
        assert no.value.code is LocalCode.UNAVAILABLE


async def test_a_refusal_is_logged_and_journalled_with_the_rule(tmp_path: Path) -> None:
    async with desk(tmp_path, [NOT_BOB]) as side:
        error = await refused(side, Action.DELEGATION_CREATE, "bob")
        assert error.code is LocalCode.POLICY_DENIED
        [(_, fields)] = side.audit.entries
        assert (fields["decision"], fields["rule"], fields["reason"]) == ("deny", "not-bob", error.message)
        assert side.audit.durable == set(), "nobody waits for the word that nothing is done"
        [told] = await events(side)
        assert {name: told.data[name] for name in ("subject", "action", "resource", "rule", "code")} == {
            "subject": "human",
            "action": "delegation.create",
            "resource": "bob",
            "rule": "not-bob",
            "code": "POLICY_DENIED",
        }
        assert "decided" not in told.data


async def test_a_refusal_of_a_run_has_all_that_a_replay_needs(tmp_path: Path) -> None:
    async with desk(tmp_path, [NOT_BOB]) as side:
        await refused(side, Action.DELEGATION_CREATE, "bob", EventKeys(request_id="req_1"))
        [told] = await events(side)
        assert told.keys.request_id == "req_1"
        assert DECIDED in told.data


async def test_what_a_rule_hides_is_told_as_what_is_not_there(tmp_path: Path) -> None:
    async with desk(tmp_path, [HIDDEN]) as side:
        error = await refused(side, Action.DELEGATION_CREATE, "bob")
        assert (error.code, error.message) == (LocalCode.NOT_FOUND, "there is no 'bob' here")
        [told] = await events(side)
        assert told.data["code"] == "NOT_FOUND", "its owner still sees that it was tried"
        assert side.gatekeeper.hides(HUMAN, Action.DELEGATION_CREATE, "bob")
        assert not side.gatekeeper.hides(HUMAN, Action.DELEGATION_CREATE, "carol")
        assert side.gatekeeper.hides_any(HUMAN, Action.SESSION_READ)
        assert not side.gatekeeper.hides_any(HUMAN, Action.ROOM_READ)
        assert not side.gatekeeper.public("bob")
        assert side.gatekeeper.public("carol")


async def test_names_of_others_are_cleaned_and_cut_before_they_are_kept(tmp_path: Path) -> None:
    name = "bob\x1b[2J" + "x" * 2 * MAX_JOURNALLED_CHARS
    async with desk(tmp_path, [{**NOT_BOB, "resource": "bob*"}]) as side:
        await refused(side, Action.DELEGATION_CREATE, name)
        [told], [(_, fields)] = await events(side), side.audit.entries
        for kept in (str(told.data["resource"]), str(fields["resource"])):
            assert len(kept) <= MAX_JOURNALLED_CHARS
            assert "\x1b" not in kept
        assert fields["shortened"] is True


async def test_of_many_attributes_some_are_kept_and_large_numbers_as_text(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        given: dict[str, Value] = {"big": 2**60, **{f"n{number}": number for number in range(2 * MAX_AUDITED_VALUES)}}
        await side.gatekeeper.decide(HUMAN, Action.DELEGATION_CREATE, Resource("bob", given))
        kept = side.audit.entries[0][1]["attributes"]
        assert isinstance(kept, dict)
        assert len(kept) == MAX_AUDITED_VALUES
        assert kept["big"] == str(2**60)
        assert side.audit.entries[0][1]["shortened"] is True


async def test_directories_that_a_person_allowed_count_for_lending_alone(tmp_path: Path) -> None:
    host, place = Subject("mcp", "host"), tmp_path / "project"
    place.mkdir()
    roots: list[str] = []
    async with desk(tmp_path) as side:
        gate = Gatekeeper(side.policy, side.journal, lambda: roots, side.audit)

        async def outcome() -> str:
            resource = Resource(str(place), {"path": str(place), "access_mode": "rw"})
            return (await gate.decide(host, Action.WORKSPACE_LEND, resource)).outcome

        assert await outcome() == "deny"
        roots.append(str(tmp_path))
        assert await outcome() == "allow"
        record = await gate.decide_on_record(host, Action.DELEGATION_CREATE, Resource("bob"))
        assert record.subject.roots == ()


async def test_a_look_ahead_writes_nothing_and_knows_what_a_grant_would_change(tmp_path: Path) -> None:
    async with desk(tmp_path, [{**NO_SHELL, "effect": "approval"}]) as side:
        shell = Resource("shell.exec", {"access_mode": "rw"})
        assert side.gatekeeper.foresee(AGENT, Action.TOOL_CALL, shell).decision.needs_grant
        assert side.gatekeeper.foresee(AGENT, Action.TOOL_CALL, shell, granted=True).decision.allowed
        narrowed = side.gatekeeper.foresee(AGENT, Action.TOOL_CALL, shell, narrowing(["shell.exec"], []), granted=True)
        assert not narrowed.decision.allowed
        assert side.gatekeeper.never(AGENT, Action.TOOL_CALL, "shell.exec") is None
        assert (side.audit.entries, await events(side)) == ([], [])


async def test_what_nothing_gets_around_is_known(tmp_path: Path) -> None:
    async with desk(tmp_path, [NO_SHELL]) as side:
        denial = side.gatekeeper.never(AGENT, Action.TOOL_CALL, "shell.exec")
        assert denial is not None
        assert denial.rule == "no-shell"


@pytest.mark.parametrize(("error", "fields"), [(None, {"outcome": "done"}), ("x\x07y", {"outcome": "failed"})])
async def test_what_became_of_a_change_is_told_of_its_decision(
    tmp_path: Path, error: str | None, fields: Mapping[str, JsonValue]
) -> None:
    async with desk(tmp_path) as side:
        side.gatekeeper.outcome(7, error)
        [(kind, told)] = side.audit.entries
        assert (kind, told["of"]) == ("outcome", 7)
        assert told.items() >= fields.items()
        assert "\x07" not in str(told.get("error"))


async def test_a_disk_that_never_answers_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatekeepers, "LOOK_SECONDS", 0.05)
    answers = threading.Event()
    try:
        with pytest.raises(SubletError) as no:
            await looked_up(answers.wait)
        assert no.value.code is LocalCode.UNAVAILABLE
    finally:
        answers.set()


def _names(subjects: Sequence[Subject]) -> list[str]:
    return [who(subject) for subject in subjects]


def test_callers_are_named_for_people() -> None:
    assert _names([HUMAN, AGENT, Subject("mcp", "claude code")]) == ["human", "agent coder", "mcp claude code"]
