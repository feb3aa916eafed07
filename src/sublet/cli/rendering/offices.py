"""How offices are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from sublet.cli.rendering.columns import Columns

if TYPE_CHECKING:
    from sublet.daemon.api.offices import OfficeMember, OfficeView


def office_table(known: Sequence[OfficeView]) -> RenderableType:
    """Return for each name of each office its role, whether it is there, and how many calls of it are under way."""
    rows = [row for one in known for row in _rows(one)]
    return Columns(("office", "id", "member", "role", "now"), [[Text(fact) for fact in row] for row in rows])


def _rows(office: OfficeView) -> list[tuple[str, str, str, str, str]]:
    members = [(member.name, str(member.role), _now(member)) for member in office.members]
    return [(office.name, office.office_id, *member) for member in members or [("nobody yet", "", "")]]


def _now(member: OfficeMember) -> str:
    if not member.connected:
        return "away"
    return f"here, {member.calls} calls" if member.calls else "here"
