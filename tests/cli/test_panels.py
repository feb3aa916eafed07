"""Panels and what is said to all, as a person sees them, and what is typed wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
import typer

from sublet.cli.commands.asking.nodes import _messages, _say
from sublet.cli.commands.lending import delegate
from sublet.cli.errors import Exit
from sublet.cli.options.panels import panel_of
from sublet.cli.reaching.panels import apply_member, exit_for_panel, panel_request, review_panel
from sublet.cli.rendering.panels import check_outputs, file_table, member_line, panel_table
from sublet.cli.rendering.screen import Screen
from sublet.daemon.api.delegation_views import ChangeSet, ErrorView
from sublet.daemon.api.federation import BroadcastHeard, BroadcastSent, BroadcastView
from sublet.daemon.api.panels import MemberView, PanelChange, PanelFile, PanelReview, PanelView
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.panels import MemberState

pytestmark = pytest.mark.anyio
PANEL = "pnl_" + "a" * 32


class Asked:
    """A daemon that answers in turn, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []

    async def call(self, operation: Any, request: Any) -> Any:
        self.requests.append((operation.name, request))
        return self.answers.pop(0)


def member(number: int, state: MemberState, **more: Any) -> MemberView:
    return MemberView.model_validate(
        {
            "member": number,
            "delegation_id": "dlg_" + str(number) * 32,
            "address": f"mender@n{number}.local",
            "peer": f"n{number}",
            "agent": "mender",
            "why": "it can",
            "state": state,
            **more,
        }
    )


def panel(*members: MemberView, **more: Any) -> PanelView:
    return PanelView.model_validate(
        {
            "panel_id": PANEL,
            "state": "over",
            "workspace_dir": "/w",
            "description": "mend",
            "to": "capability:x",
            "check": "make",
            "check_seconds": 600,
            "stop": "all",
            "agent_seconds": 1,
            "created_at": "2026-11-28T10:00:00Z",
            "members": members,
            **more,
        }
    )


def text_of(*parts: Any, capsys: pytest.CaptureFixture[str]) -> str:
    Screen().show(*parts)
    return capsys.readouterr().out


COUNTS = ChangeSet.model_validate(
    {"status": "pending", "added": 1, "changed": 2, "deleted": 0, "lines_added": 7, "lines_deleted": 3}
)
THREE = (
    member(1, MemberState.PASSED, exit_code=0, change_set=COUNTS, seconds=4),
    member(2, MemberState.FAILED, exit_code=2, change_set=COUNTS, check_output="no \x1b[31m\nand no"),
    member(3, MemberState.NONE, error=ErrorView(code="CANCELLED", message="stopped", hint="")),
)


def test_members_are_shown_side_by_side_and_nothing_they_wrote_steers_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert member_line(THREE[0]) == "  1  mender@n1.local  passed"
    assert member_line(THREE[1]) == "  2  mender@n2.local  failed: the check ended with 2"
    assert member_line(THREE[2]) == "  3  mender@n3.local  no result: stopped"
    shown = text_of(panel_table(panel(*THREE)), capsys=capsys)
    assert "exit 0" in shown
    assert "exit 2" in shown
    assert "+7 -3" in shown
    assert "dlg_" + "1" * 32 in shown
    printed = text_of(*check_outputs(panel(*THREE), Screen().symbols), capsys=capsys)
    assert "and no" in printed
    assert "\x1b" not in printed
    files = [
        PanelFile(
            path="a.py",
            changes=[
                PanelChange(member=1, change="changed", lines_added=1, lines_deleted=2),
                PanelChange(member=3, change="added", lines_added=5, lines_deleted=0, conflict=True),
            ],
        )
    ]
    table = text_of(file_table(PanelReview(panel=panel(*THREE), files=files), Screen().symbols), capsys=capsys)
    row = next(line for line in table.splitlines() if line.startswith("a.py"))
    assert "+1" in row
    assert "added +5" in row


@pytest.mark.parametrize(
    ("states", "check", "over", "status"),
    [
        ([MemberState.FAILED, MemberState.PASSED], "make", True, Exit.OK),
        ([MemberState.FAILED, MemberState.READY], "make", True, Exit.ERROR),
        ([MemberState.NONE, MemberState.READY], None, True, Exit.OK),
        ([MemberState.NONE, MemberState.NONE], None, True, Exit.ERROR),
        ([MemberState.WORKING, MemberState.PASSED], "make", False, Exit.INTERRUPTED),
    ],
)
def test_the_exit_status_tells_whether_there_is_a_result_to_take(
    states: Sequence[MemberState], check: str | None, over: bool, status: Exit
) -> None:
    members = [member(number, state) for number, state in enumerate(states, 1)]
    assert exit_for_panel(panel(*members, check=check, state="over" if over else "running")) is status


@pytest.mark.parametrize(
    ("panel_given", "more", "option"),
    [
        ({"check": "make"}, {}, "--check"),
        ({"members": 2, "first": True}, {}, "--first"),
        ({"members": 2, "check_seconds": 5}, {}, "--check-time"),
        ({"members": 2}, {"watch": True}, "--watch"),
        ({"members": 2}, {"notify": True}, "--notify"),
        ({"members": 2}, {"result_branch": "b"}, "--result-branch"),
    ],
)
def test_what_would_have_no_effect_is_refused(panel_given: Any, more: dict[str, Any], option: str) -> None:
    asked = {"resources": None, "result_branch": None, "notify": False, "watch": False, **more}
    with pytest.raises(typer.BadParameter) as refused:
        delegate._check_panel(panel_given, asked.pop("resources"), asked.pop("result_branch"), **asked)
    assert refused.value.param_hint == option
    delegate._check_panel({}, None, None, notify=True, watch=True)
    delegate._check_panel({"members": 2, "check": "x", "first": True}, None, None, notify=False, watch=False)


def test_a_request_says_which_option_is_wrong() -> None:
    fields = {"workspace_dir": "/w", "to": "capability:x", "prompt": "p", "members": 2}
    assert panel_request(fields).result_mode == "staged"
    with pytest.raises(SubletError, match="--panel"):
        panel_request({**fields, "members": 99})
    with pytest.raises(SubletError, match="--check"):
        panel_request({**fields, "check": ""})


async def test_a_panel_is_named_in_full_or_by_the_beginning_of_its_id() -> None:
    class View:
        def __init__(self, panel_id: str | None) -> None:
            self.panel_id = panel_id

    views = [View(PANEL), View(PANEL), View("pnl_ab" + "0" * 30), View(None)]
    assert await panel_of(cast("Any", Asked()), "dlg_1") is None
    assert await panel_of(cast("Any", Asked()), "last") is None
    assert await panel_of(cast("Any", Asked()), PANEL) == PANEL
    assert await panel_of(cast("Any", Asked(views)), "pnl_aa") == PANEL
    for given, code in (("pnl_a", LocalCode.INVALID_ARGUMENT), ("pnl_ff", LocalCode.NOT_FOUND)):
        with pytest.raises(SubletError) as refused:
            await panel_of(cast("Any", Asked(views)), given)
        assert refused.value.code == code


async def test_a_member_has_to_be_named_and_a_panel_has_no_single_patch() -> None:
    with pytest.raises(SubletError, match="which member"):
        await apply_member(cast("Any", Asked()), Screen(), PANEL, None, partial=False, allow_mass_deletion=False)
    with pytest.raises(SubletError, match="several patches"):
        await review_panel(cast("Any", Asked()), Screen(), PANEL, stat=False, patch="file")


async def test_what_is_said_to_all_tells_who_heard_it_and_what_others_say_is_quoted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sent = BroadcastSent(
        message_id="m",
        room_id="!agent-broadcast:a",
        from_agent="human@a",
        at="now",
        heard=[BroadcastHeard(peer="bob"), BroadcastHeard(peer="eve", why_not="it is not reached")],
    )
    asked = Asked(sent, sent.model_copy(update={"heard": []}))
    assert await _say(cast("Any", asked), Screen(), "tea") is None
    told = capsys.readouterr()
    assert "1 node heard it" in told.out
    assert "eve did not: it is not reached" in told.err
    assert await _say(cast("Any", asked), Screen(), "tea") is Exit.ERROR
    with pytest.raises(SubletError, match="characters"):
        await _say(cast("Any", asked), Screen(), "x" * 4_001)
    capsys.readouterr()
    heard = BroadcastView(
        message_id="m",
        from_agent="human@bob.local",
        peer="bob",
        message_type="announcement",
        text="tea\n\x1b[31mred",
        at="2026-11-28T10:00:00Z",
    )
    await _messages(cast("Any", Asked([heard])), Screen())
    shown = capsys.readouterr().out
    assert "human@bob.local" in shown
    assert "\x1b" not in shown
    assert all(line.startswith("  ") for line in shown.splitlines()[1:]), "each line of it is quoted"
