"""Who speaks, and the operations of rooms as that entity: what every service of rooms is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sublet.daemon.rooms.entities import entity_of
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.rooms.plain import plain
from sublet.policy.model import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, is_room_id

if TYPE_CHECKING:
    from sublet.messaging.service import MessagingService


class Speaking:
    """Runs operations as the caller's own entity, which nobody chooses.

    Args:
        messaging: runs when it is needed.
        node_id: ours.
    """

    def __init__(self, messaging: Messaging, node_id: str) -> None:
        self._messaging = messaging
        self._node_id = node_id

    async def service(self) -> MessagingService:
        """Return what runs the rooms.

        Raises:
            SubletError: ``UNAVAILABLE``.
        """
        return await self._messaging.use()

    def entity(self, caller: Subject) -> EntityId:
        """Return as whom a caller speaks.

        Raises:
            SubletError: ``POLICY_DENIED`` for who has no entity here.
        """
        return entity_of(caller, self._node_id)

    def apart(self, entity: EntityId) -> str:
        """Return why nothing goes to or comes from the daemon of an entity for now; empty where it does, or may."""
        return self._messaging.why_apart_from(entity)

    async def call(self, caller: Subject, operation: str, **arguments: Any) -> Any:
        """Return what an operation answers the caller, as JSON can say it, whatever members have written.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` for what is no id of a room; the operation refuses.
        """
        if "room_id" in arguments and not is_room_id(arguments["room_id"]):
            raise SubletError(LocalCode.INVALID_ARGUMENT, "that is no id of a room", "See: sublet room list")
        entity = self.entity(caller)
        return plain(await (await self.service()).call(entity, operation, **arguments))
