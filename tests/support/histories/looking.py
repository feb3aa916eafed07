"""Looks at a room as one member is shown it, all pages of it."""

from __future__ import annotations

from typing import Any

from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.ids import RoomId
from support.histories.promises import Shown
from support.histories.stage import NotRunning, Stage

PAGE = 200


async def look(stage: Stage, who: int, room: RoomId) -> Shown | None:
    """Return a room as a daemon shows it; None where it shows none, or does not run."""
    try:
        found = await stage.call(who, "room.get", room_id=room)
        refs = await _refs(stage, who, room)
        reading = await stage.call(who, "receipts.summary", room_id=room)
        await stage.call(who, "channels.list")  # which has to be possible, whatever is in the room
        profiles = {}
        for entity in sorted(found["members"]):
            profiles[entity] = await _profile(stage, who, entity)
    except (SubletError, NotRunning):
        return None
    config: dict[str, Any] = found["config"]
    return Shown(refs, found["name"], found["members"], config, reading["readers"], profiles)


async def look_at_config(stage: Stage, who: int, room: RoomId) -> Shown | None:
    """Return what a room's config says at a daemon, without its messages; None where it shows none."""
    try:
        found = await stage.call(who, "room.get", room_id=room)
    except (SubletError, NotRunning):
        return None
    return Shown([], found["name"], found["members"], found["config"], {}, {})


async def _refs(stage: Stage, who: int, room: RoomId) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    before = None
    while True:
        page = await stage.call(who, "timeline.list", room_id=room, limit=PAGE, before=before, peek=True)
        found = page["refs"] + found
        before = page["next_cursor"]
        if before is None:
            return found


async def _profile(stage: Stage, who: int, entity: str) -> Any:
    try:
        return (await stage.call(who, "profile.get", entity=entity))["body"]
    except SubletError:
        return None
