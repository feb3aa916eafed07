"""Policy, approvals and the audit before what an Agent asks of a Computer."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.daemon.approvals.call_gate import CallGate
from sublet.daemon.approvals.gate_parts import GateParts
from sublet.daemon.offices.guard import OfficeGuard
from sublet.offices.ports import AskedOfComputer, Refused
from sublet.offices.seats import Seat
from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.names import ClientEvent, Role
from support.approvals import Desk, desk

pytestmark = pytest.mark.anyio

ALICE = Seat("11111111-1111-4111-8111-111111111111", "desk", Role.AGENT, "alice", "t")
OFFICE: dict[str, JsonValue] = {"kind": "office"}


class News:
    """Keeps how calls have ended."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str | None, float]] = []

    def called(self, asked: AskedOfComputer, error: str | None, seconds: float) -> None:
        self.told.append((asked.event, error, seconds))


def guard(side: Desk, news: News | None = None) -> OfficeGuard:
    gate = CallGate(GateParts(side.gatekeeper, side.journal, side.grants, side.questions, side.approver, side.clock))
    times = iter(range(0, 1_000, 3))
    return OfficeGuard(side.gatekeeper, gate, news or News(), lambda: float(next(times)))


def call(tool: str = "shell__run", computer: str = "bob", **arguments: JsonValue) -> AskedOfComputer:
    return AskedOfComputer(ALICE, computer, ClientEvent.TOOL_CALL, tool, arguments)


def read(event: ClientEvent) -> AskedOfComputer:
    return AskedOfComputer(ALICE, "bob", event, "", {})


async def test_a_call_is_written_down_before_it_acts_and_when_it_has_ended(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        allowed = await guard(side).begin(call(command="ls"))
        [(kind, fields)] = side.audit.entries
        assert kind == "decision"
        assert fields["subject"] == "office desk/alice"
        assert fields["action"] == "office.call"
        assert fields["resource"] == "shell__run"
        assert fields["attributes"] == {"size_bytes": 9, "office": "desk", "computer": "bob"}
        await allowed.ended("the tool has failed")
        assert side.audit.entries[1][1]["error"] == "the tool has failed"


async def test_the_end_of_calls_and_uploads_is_told_and_of_nothing_else(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        news = News()
        guarded = guard(side, news)
        upload = AskedOfComputer(ALICE, "bob", ClientEvent.PUT_BLOB, "", {})
        goes_on = AskedOfComputer(ALICE, "bob", ClientEvent.PUT_BLOB, "", {}, goes_on=True)
        for asked in (call(), upload, goes_on, read(ClientEvent.GET_CONFIG), read(ClientEvent.GET_TOOLS)):
            await (await guarded.begin(asked)).ended("why")
        assert news.told == [("client:tool_call", "why", 3.0), ("client:put_blob", "why", 3.0)]


@pytest.mark.parametrize("event", [ClientEvent.GET_CONFIG, ClientEvent.GET_DESKTOP])
async def test_reads_of_config_and_desktop_are_written_down(tmp_path: Path, event: ClientEvent) -> None:
    async with desk(tmp_path) as side:
        await (await guard(side).begin(read(event))).ended(None)
        assert side.audit.entries[0][1]["action"] == "office.look"
        assert side.audit.entries[0][1]["resource"] == event.removeprefix("client:get_")


async def test_other_reads_are_asked_for_and_not_written_down(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        for event in (ClientEvent.GET_TOOLS, ClientEvent.GET_BLOB, ClientEvent.GET_SKILL, ClientEvent.GET_RESOURCES):
            await (await guard(side).begin(read(event))).ended(None)
        assert side.audit.entries == []


@pytest.mark.parametrize("hide", [False, True])
async def test_a_rule_denies_or_hides_by_office_computer_and_argument(tmp_path: Path, hide: bool) -> None:
    rule: dict[str, JsonValue] = {
        "id": "no",
        "effect": "deny",
        "action": "office.call",
        "subject": OFFICE,
        "resource": "shell__*",
        "when": {
            "office": {"any_of": ["desk"]},
            "computer": {"any_of": ["bob"]},
            "args.command": {"like": "rm *"},
        },
        "reason": "not that",
        **({"hide": True} if hide else {}),
    }
    async with desk(tmp_path, [rule]) as side:
        with pytest.raises(Refused) as refused:
            await guard(side).begin(call(command="rm x"))
        assert refused.value.hidden is hide
        assert hide or "not that" in str(refused.value)
        await guard(side).begin(call(command="ls"))
        await guard(side).begin(call(computer="carol", command="rm x"))


async def test_a_rule_about_uploads_stops_one_that_is_under_way(tmp_path: Path) -> None:
    piece = AskedOfComputer(ALICE, "bob", ClientEvent.PUT_BLOB, "", {}, goes_on=True)
    async with desk(tmp_path) as side:
        await guard(side).begin(AskedOfComputer(ALICE, "bob", ClientEvent.PUT_BLOB, "", {}))
        assert side.audit.entries[0][1]["resource"] == "put_blob"
        await (await guard(side).begin(piece)).ended(None)
        assert len(side.audit.entries) == 1
    (tmp_path / "denied").mkdir()
    deny: dict[str, JsonValue] = {"id": "no", "effect": "deny", "action": "office.call", "resource": "put_blob"}
    async with desk(tmp_path / "denied", [deny]) as side:
        with pytest.raises(Refused):
            await guard(side).begin(piece)


async def test_a_call_that_wants_a_person_says_how_one_approves(tmp_path: Path) -> None:
    ask: dict[str, JsonValue] = {"id": "ask", "effect": "approval", "action": "office.call", "resource": "shell__*"}
    async with desk(tmp_path, [ask]) as side:
        await side.make_approver()
        with pytest.raises(Refused, match="sublet approvals approve") as refused:
            await guard(side).begin(call(command="ls"))
        assert not refused.value.hidden
