"""Invitations for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from sublet.cli.rendering.columns import Columns
from sublet.cli.rendering.delegations import local_time
from sublet.cli.rendering.rooms import room_name

if TYPE_CHECKING:
    from sublet.cli.rendering.entity_names import EntityNames
    from sublet.daemon.api.invitations import InvitationView


def invitations(found: Sequence[InvitationView], names: EntityNames) -> RenderableType:
    """Return the table of invitations."""
    rows = [
        [
            Text(one.room_id),
            Text(names.short(one.by)),
            Text(", ".join(names.short(entity) for entity in one.whom)),
            Text(members(one, names)),
            Text(local_time(one.at)),
            Text("" if one.answer == "pending" else one.answer),
            Text(room_name(one.name, names)),
        ]
        for one in found
    ]
    return Columns(["id", "from", "for", "members", "since", "answer", "name"], rows)


def members(one: InvitationView, names: EntityNames) -> str:
    """Return who is in a room."""
    named = ", ".join(names.short(entity) for entity in one.members)
    more = one.member_count - len(one.members)
    return f"{named} and {more} more" if more > 0 else named
