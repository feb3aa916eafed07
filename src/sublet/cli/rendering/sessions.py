"""How sessions and local agents look in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from sublet.cli.rendering.columns import Columns
from sublet.cli.rendering.delegations import SHORT_ID, local_time
from sublet.cli.rendering.screen import indented
from sublet.cli.rendering.words import whole_line
from sublet.protocol.text import clean

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sublet.daemon.api.sessions import LocalAgentView, SessionDetail, SessionView

_STYLES = {"active": "green", "paused": "yellow", "completed": "dim", "error": "red"}


def session_table(found: Sequence[SessionView]) -> RenderableType:
    """Return for each session its short id, state, last use, last route and title."""
    rows = [
        [
            Text(one.finger_session_id),
            Text(_state(one), style=_STYLES.get(one.status, "")),
            Text(local_time(one.updated_at)),
            Text(whole_line(one.last_route.target or one.last_route.decision) if one.last_route else "-"),
            Text(whole_line(one.title) or "-"),
        ]
        for one in found
    ]
    return Columns(("session", "state", "used", "last route", "title"), rows, {"session": SHORT_ID})


def session_details(found: SessionDetail) -> list[RenderableType]:
    """Return a session in full."""
    lines = [f"{found.finger_session_id}  {_state(found)}", f"  title    {whole_line(found.title) or '-'}"]
    lines.append(f"  begun    {local_time(found.created_at)} by {whole_line(found.owner)}")
    if found.last_route is not None:
        last = found.last_route
        lines.append(f"  route    {last.decision} {whole_line(last.target)} ({last.confidence:.2f})")
    lines += [
        f"  bound    {whole_line(one.agent_id)} by {whole_line(one.provider)}: {whole_line(one.provider_session_id)}"
        for one in found.bindings
    ]
    if found.question is not None:
        lines.append(f"  waits    {whole_line(found.question)}")
    if found.unreadable_messages:
        lines.append(f"  {found.unreadable_messages} messages can't be read")
    shown: list[RenderableType] = [Text("\n".join(lines))]
    for message in found.messages:
        who = message.agent_id or message.role
        shown.append(Text(f"\n{whole_line(who)}  {local_time(message.at)}", style="bold"))
        shown.append(indented(clean(message.text, len(message.text) + 1)))
    return shown


def agent_table(found: Sequence[LocalAgentView]) -> RenderableType:
    """Return the agents of this daemon as a table."""
    rows = [
        [
            Text(one.agent_id),
            Text(one.provider),
            Text(_condition(one), style="green" if one.ok and not one.denied else "red"),
            Text(whole_line("; ".join(one.skills) or one.description) or "-"),
        ]
        for one in found
    ]
    return Columns(("agent", "provider", "state", "does"), rows)


def _state(session: SessionView) -> str:
    return "asks" if session.question is not None else "works" if session.busy else session.status


def _condition(agent: LocalAgentView) -> str:
    if agent.denied:
        return f"not for you: {whole_line(agent.denied)}"
    if not agent.ok:
        return whole_line(agent.detail) or "broken"
    return f"works ({agent.running})" if agent.running else "ready"
