"""What is listed: a pipe gets all of it, and a narrow terminal gets all but the end of the last column."""

from __future__ import annotations

import ast
import io
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

import sublet.cli
from sublet.cli.rendering.approvals import approval_table, grant_table
from sublet.cli.rendering.columns import MIN_LAST_WIDTH, Columns, OneLine, inset
from sublet.cli.rendering.delegations import listing, work_listing
from sublet.cli.rendering.entity_names import EntityNames
from sublet.cli.rendering.events import event_line
from sublet.cli.rendering.peers import check_lines, peer_details, peer_table, token_table
from sublet.cli.rendering.policy import denial_lines, entry_line
from sublet.cli.rendering.rooms import channels, message, profile, room, rooms
from sublet.cli.rendering.screen import Screen, Symbols
from sublet.cli.rendering.sessions import agent_table, session_details, session_table
from sublet.daemon.api.approvals import ApprovalView, GrantView
from sublet.daemon.api.assignments import AssignmentView
from sublet.daemon.api.daemon import Check
from sublet.daemon.api.peers import AgentView, PeerView
from sublet.daemon.api.room_messages import ChannelView, MessageView
from sublet.daemon.api.room_people import ProfileView
from sublet.daemon.api.rooms import RoomDetail, RoomView
from sublet.daemon.api.sessions import LocalAgentView, SessionDetail, SessionView
from sublet.daemon.api.tokens import TokenView
from sublet.protocol.events import Event, EventKeys, EventKind
from sublet.protocol.lifecycle import AssignmentState
from support.fake_control import AT, ID, delegation

SOURCE = Path(sublet.cli.__file__).parent
LONG = " ".join(f"word{number}" for number in range(900)) + " end"
"""Longer than any line that is one elsewhere."""
NAMES = EntityNames("@human:here", {}, whole=True)
NOW = datetime(2026, 11, 28, tzinfo=UTC)
SYMBOLS = Symbols(fancy=True)
PEER = PeerView.model_construct(
    name="bob",
    node_id="node",
    fingerprint="key",
    a2a_url="https://" + "a" * 300,
    paired_at=AT,
    agents=[AgentView.model_construct(id="agent", description=LONG, skills=[])],
    usable=False,
    why_not=LONG,
    note=LONG,
    rooms=LONG,
    was=None,
)
SESSION: dict[str, Any] = {
    "finger_session_id": "ses_" + "0123456789abcdef" * 2,
    "title": LONG,
    "status": "active",
    "owner": "owner",
    "created_at": AT,
    "updated_at": AT,
    "question": LONG,
}
MESSAGE: dict[str, Any] = {
    "author": "@human:" + "f" * 64,
    "created_at": AT,
    "status": "active",
    "about": {},
}
ROOM: dict[str, Any] = {"room_id": "room", "name": LONG, "policy": "open", "role": "owner", "members": 2}
APPROVAL = ApprovalView.model_construct(
    id="apr_1", state="pending", waits=True, remaining_seconds=5, agent="agent", shown=LONG
)
GRANT: dict[str, Any] = {
    "id": "grt_1",
    "state": "usable",
    "max_uses": 2,
    "remaining_uses": 1,
    "remaining_seconds": 5,
    "agent": "a",
}
WORK = AssignmentView(
    delegation_id=ID,
    state=AssignmentState.ERROR,
    peer="bob",
    agent="agent",
    description=LONG,
    access_mode="rw",
    created_at=AT,
    updated_at=AT,
    outcome="limit",
)
SAID = MessageView.model_construct(ref_id="A" * 26, body=LONG, ext={}, **MESSAGE)
ANSWER = MessageView.model_construct(ref_id="B" * 26, body="Yes.", ext={"reply_to": {"ref_id": "A" * 26}}, **MESSAGE)
EVENT = Event(
    seq=1, at=AT, kind=EventKind.DELEGATION_OUTPUT, delegation_id=ID, data={"text": LONG}, keys=EventKeys(agent_id="a")
)
ENTRY: dict[str, Any] = {
    "seq": 1,
    "at": AT,
    "kind": "decision",
    "decision": "deny",
    "subject": "s",
    "action": "a",
    "resource": LONG,
}

PROFILE = ProfileView.model_construct(entity_id="@a:b", frontmatter={"role": LONG}, body="")

LISTINGS: dict[str, Callable[[], Iterable[RenderableType]]] = {
    "ls": lambda: [listing([delegation(description=LONG)], NOW)],
    "work": lambda: [work_listing([WORK], NOW)],
    "peers list": lambda: [peer_table([PEER])],
    "peers show": lambda: [peer_details(PEER)],
    "token list": lambda: [token_table([TokenView.model_construct(name=LONG, created_at=AT, expires_at=None)])],
    "sessions list": lambda: [session_table([SessionView.model_construct(**SESSION)])],
    "sessions show": lambda: session_details(SessionDetail.model_construct(**SESSION)),
    "agents": lambda: [agent_table([LocalAgentView.model_construct(agent_id="a", provider="p", description=LONG)])],
    "agents, denied": lambda: [agent_table([LocalAgentView.model_construct(agent_id="a", provider="p", denied=LONG)])],
    "room list": lambda: rooms([RoomView.model_construct(**ROOM)], NAMES, {}),
    "room show": lambda: room(
        RoomDetail.model_construct(**ROOM, roles={"@human:here": "owner"}, knocks={"@human:" + "f" * 64: LONG}), NAMES
    ),
    "channels": lambda: [
        channels([ChannelView.model_construct(channel="c", room_count=1, last_activity=AT, name=LONG)])
    ],
    "read": lambda: message(SAID, NAMES, SYMBOLS, {}),
    "read, an answer": lambda: message(ANSWER, NAMES, SYMBOLS, {SAID.ref_id: SAID}),
    "search": lambda: profile(
        ProfileView.model_construct(entity_id="@a:b", frontmatter={"role": LONG}, body=""), NAMES
    ),
    "approvals list": lambda: [approval_table([APPROVAL])],
    "grants list": lambda: [
        grant_table([GrantView.model_construct(**GRANT, tool="t", widened=True, when={"path": LONG}, outcomes=[])])
    ],
    "events": lambda: [event_line(EVENT, cuts=False)],
    "audit log": lambda: [entry_line(ENTRY)],
    "audit denials": lambda: [denial_lines({**ENTRY, "resource": "r", "reason": LONG})],
    "doctor": lambda: [check_lines([Check(name="c", ok=False, detail=LONG)], SYMBOLS)],
}


def piped(parts: Iterable[RenderableType], monkeypatch: pytest.MonkeyPatch) -> str:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.StringIO())
        Screen().show(*parts)
        assert isinstance(sys.stdout, io.StringIO)
        return sys.stdout.getvalue()


def on_terminal(parts: Iterable[RenderableType], width: int) -> list[str]:
    file = io.StringIO()
    console = Console(
        file=file, width=width, force_terminal=True, color_system=None, markup=False, emoji=False, highlight=False
    )
    for part in parts:
        console.print(part)
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.mark.parametrize("name", LISTINGS)
def test_a_pipe_gets_all_of_it_in_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = piped(LISTINGS[name](), monkeypatch)
    assert any(LONG in line for line in out.splitlines())
    assert "…" not in out


@pytest.mark.parametrize("name", LISTINGS)
def test_no_line_is_wider_than_a_narrow_terminal(name: str) -> None:
    lines = on_terminal(LISTINGS[name](), 40)
    assert max(map(len, lines)) <= 40


ROWS = [[Text("dlg_0123456789abcdef"), Text("running"), Text(""), Text("https://somewhere.else"), Text("x " * 40)]]
HEADS = ["id", "state", "left", "address", "task"]


def test_ids_are_short_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Columns(HEADS, ROWS, {"id": 8})
    assert "dlg_0123456789abcdef  running  https://somewhere.else  " + ("x " * 40).rstrip() in piped(
        [table], monkeypatch
    )
    head, row = on_terminal([table], 80)
    assert head == "id        state    address                 task"
    assert row == "dlg_0123  running  https://somewhere.else  " + "x " * 18 + "…"


def test_columns_that_are_too_wide_together_go_on_below() -> None:
    lines = on_terminal([Columns(HEADS, ROWS, {"id": 8})], 30)
    assert lines[:2] == ["id  state  address  task", "dlg_0123  running"]
    assert lines[2] == "  https://somewhere.else"
    assert "".join(lines[3:]).replace(" ", "") == "x" * 40


def test_the_last_column_is_cut_where_enough_of_it_is_left() -> None:
    wide = [[Text("a" * 20), Text("b" * 30)]]
    assert on_terminal([Columns(["one", "two"], wide)], 22 + MIN_LAST_WIDTH)[1] == "a" * 20 + "  " + "b" * 9 + "…"
    assert on_terminal([Columns(["one", "two"], wide)], 21 + MIN_LAST_WIDTH)[1:] == ["a" * 20, "  " + "b" * 29, "  b"]


def test_columns_that_are_set_in_are_as_wide_as_they_have_to_be() -> None:
    assert on_terminal([inset(Columns(["a"], [[Text("b" * 50)]]), 2)], 20)[1] == "  " + "b" * 17 + "…"
    assert on_terminal([OneLine(Text("c" * 50))], 20) == ["c" * 19 + "…"]


CUTTING = {
    "rendering/columns.py": "fits lines to a terminal",
    "rendering/events.py": "cuts values where it is told to",
    "rendering/live.py": "draws lines anew, in place",
    "rendering/screen.py": "bounds errors, which a peer may have written",
    "rendering/entity_names.py": "shortens the node of an unknown daemon where it is told to",
    "commands/governance/events.py": "repeats what was typed",
}
"""Who may cut a line, and why."""


def test_whatever_else_is_shown_cuts_nothing_by_itself() -> None:
    found = set()
    for file in [*(SOURCE / "rendering").rglob("*.py"), *(SOURCE / "commands").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (
                (ast.unparse(node.func) == "clean_line" and len(node.args) > 1)
                or ast.unparse(node.func).endswith(".truncate")
            ):
                found.add(str(file.relative_to(SOURCE)))
    assert found - {"rendering/words.py"} == set(CUTTING)
