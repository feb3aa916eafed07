"""Which news an agent has been answered: whoever comes back with an answer's cursor has that answer."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from sublet.protocol.ezagent.ids import EntityId, RoomId

if TYPE_CHECKING:
    from sublet.messaging.service import MessagingService

MAX_ANSWERS: Final = 4_096


class Answered:
    """Cursors of answers, with the room that they were about.

    An answer about one room says nothing of the others, so that its cursor takes up nothing there. A cursor that nobody
    was answered, or so long ago that it is forgotten, takes up nothing either: its news is told again.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[EntityId, int], set[RoomId | None]] = OrderedDict()

    def note(self, entity: EntityId, cursor: int, room_id: RoomId | None) -> None:
        """Note what is answered; None stands for all rooms."""
        self._answers.setdefault((entity, cursor), set()).add(room_id)
        self._answers.move_to_end((entity, cursor))
        while len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)

    async def take_up(
        self, service: MessagingService, entity: EntityId, cursor: int, room_id: RoomId | None
    ) -> int | None:
        """Keep that an entity has received what it was answered with a cursor; return where its next question begins.

        Args:
            service: keeps it.
            entity: one of ours.
            cursor: which it names.
            room_id: what it asks about now.

        Returns:
            ``cursor``; None, for all that it has not received, where that was the end of an answer about another room.
        """
        about = self._answers.get((entity, cursor), set())
        for one in about:
            await service.take_up(entity, cursor, one)
        return None if about and not about & {None, room_id} else cursor
