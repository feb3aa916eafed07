"""How sessions and local agents look in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from sublet.cli.columns import Columns
from sublet.cli.render import local_time
from sublet.cli.screen import indented
from sublet.protocol.text import clean, clean_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sublet.daemon.api.sessions import LocalAgentView, SessionDetail, SessionView

MAX_SHOWN_CHARS = 2_000
_STYLES = {"active": "green", "paused": "yellow", "completed": "dim", "error": "red"}


def session_table(found: Sequence[SessionView]) -> RenderableType:
    """Return for each session its short id, state, last use, last route and title."""
    rows = [
        [
            Text(one.finger_session_id[:12]),
            Text(_state(one), style=_STYLES.get(one.status, "")),
            Text(local_time(one.updated_at)),
            Text(clean_line(one.last_route.target or one.last_route.decision, 40) if one.last_route else "-"),
            Text(clean_line(one.title, 80) or "-"),
        ]
        for one in found
    ]
    return Columns(("session", "state", "used", "last route", "title"), rows)


def session_details(found: SessionDetail) -> list[RenderableType]:
    """Return a session in full."""
    lines = [f"{found.finger_session_id}  {_state(found)}", f"  title    {clean_line(found.title, 200) or '-'}"]
    lines.append(f"  begun    {local_time(found.created_at)} by {clean_line(found.owner, 100)}")
    if found.last_route is not None:
        last = found.last_route
        lines.append(f"  route    {last.decision} {clean_line(last.target, 100)} ({last.confidence:.2f})")
    lines += [
        f"  bound    {clean_line(one.agent_id, 80)} by {clean_line(one.provider, 80)}: "
        f"{clean_line(one.provider_session_id, 80)}"
        for one in found.bindings
    ]
    if found.question is not None:
        lines.append(f"  waits    {clean_line(found.question, 300)}")
    if found.unreadable_messages:
        lines.append(f"  {found.unreadable_messages} messages can't be read")
    shown: list[RenderableType] = [Text("\n".join(lines))]
    for message in found.messages:
        who = message.agent_id or message.role
        shown.append(Text(f"\n{clean_line(who, 80)}  {local_time(message.at)}", style="bold"))
        shown.append(indented(clean(message.text, MAX_SHOWN_CHARS)))
    return shown


def agent_table(found: Sequence[LocalAgentView]) -> RenderableType:
    """Return the agents of this daemon as a table."""
    rows = [
        [
            Text(one.agent_id),
            Text(one.provider),
            Text(_condition(one), style="green" if one.ok and not one.denied else "red"),
            Text(clean_line("; ".join(one.skills) or one.description, 100) or "-"),
        ]
        for one in found
    ]
    return Columns(("agent", "provider", "state", "does"), rows)


def _state(one: SessionView) -> str:
    return "asks" if one.question is not None else "works" if one.busy else one.status


def _condition(one: LocalAgentView) -> str:
    if one.denied:
        return f"not for you: {clean_line(one.denied, 80)}"
    if not one.ok:
        return clean_line(one.detail, 80) or "broken"
    return f"works ({one.running})" if one.running else "ready"
