"""Shows refs as a reader sees them: with contents, and what the hooks of extensions make of them."""

from __future__ import annotations

from collections.abc import Mapping

from sublet.messaging.declaring.hooks import HookPipeline
from sublet.messaging.reading.reading import Reading
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.schema.fields import Fields
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId


class Showing:
    """Shows refs to readers, who are members of their room.

    Args:
        reading: what counts.
        here: who is a member.
        hooks: what extensions add.
    """

    def __init__(self, reading: Reading, here: RoomsHere, hooks: HookPipeline) -> None:
        self._reading = reading
        self._here = here
        self._hooks = hooks

    def shown(
        self,
        reader: EntityId,
        room_id: RoomId,
        refs: list[Fields],
        query: Mapping[str, str] | None = None,
        *,
        quoted: bool = False,
        page: bool = False,
    ) -> list[Fields]:
        """Return refs of a room as a reader sees them: with contents, and what extensions make of them.

        Args:
            reader: a member of the room.
            room_id: the room.
            refs: as they count.
            query: which view of an extension is asked for.
            quoted: whether they are shown inside those of another room.
            page: whether they follow each other in the room.
        """
        return self._hooks.after_read("timeline_index", reader, room_id, refs, query, quoted=quoted, page=page)

    def quoted(self, reader: EntityId, room_id: RoomId, ref_id: RefId) -> Fields | None:
        """Return a ref of any room as a reader sees it there; None where there is none, or the reader is no member."""
        if not self._here.is_member(reader, room_id):
            return None
        ref = self._reading.ref_in(room_id, ref_id)
        shown = self.shown(reader, room_id, [ref], quoted=True) if ref is not None else []
        return shown[0] if shown else None
