"""Who speaks, and the operations of rooms as that entity: what every service of rooms is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sublet.daemon.api.room_fields import MEDIA_TYPE
from sublet.daemon.api.room_messages import MessageReceipts, Words
from sublet.daemon.api.rooms import RoomChange
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.rooms.entities import HUMAN, entity_of
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.rooms.plain import plain
from sublet.daemon.rooms.views import receipts_view
from sublet.messaging.calls import message_calls, room_calls
from sublet.messaging.calls.engine_call import AnswerT, EngineCall, Parameters
from sublet.policy.decision import Action, Resource, Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RoomId, is_room_id

if TYPE_CHECKING:
    from sublet.messaging.ports.invitation_store import Invitation
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
        return self._messaging.device.person if caller.kind == HUMAN else entity_of(caller, self._node_id)

    @property
    def encryption(self) -> str:
        """From whom what is said in a new room is hidden, where nobody says otherwise."""
        return self._messaging.encryption

    @property
    def node_id(self) -> str:
        """Return ours."""
        return self._node_id

    async def home(self, entity: EntityId) -> str:
        """Return the node id of the daemon at which an entity is at home; its domain is but a namespace.

        Raises:
            SubletError: as ``service``.
        """
        return await (await self.service()).on_engine(lambda engine: engine.keyring.home(entity))

    def apart(self, entity: EntityId) -> str:
        """Return why nothing goes to or comes from the daemon of an entity for now; empty where it does, or may."""
        return self._messaging.buses.why_apart_from(entity, self._messaging.home(entity))

    def other_clock(self, entity: EntityId) -> str:
        """Return by how much the clock of an entity's daemon differs from ours; empty where it does not."""
        return self._messaging.other_clock_of(entity)

    async def call(
        self,
        caller: Subject,
        operation: EngineCall[Parameters, AnswerT],
        *args: Parameters.args,
        **arguments: Parameters.kwargs,
    ) -> AnswerT:
        """Return what an operation answers the caller, as JSON can say it, whatever members have written.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` for what is no id of a room; the operation refuses.
        """
        if arguments.get("room_id") is not None and not is_room_id(str(arguments["room_id"])):
            raise SubletError(LocalCode.INVALID_ARGUMENT, "that is no id of a room", "See: sublet room list")
        entity = self.entity(caller)
        answer: AnswerT = plain(await (await self.service()).call(entity, operation, *args, **arguments))
        return answer

    async def invitations(self, caller: Subject) -> list[Invitation]:
        """Return the invitations that a caller answers: the person those of all of ours, others their own alone.

        Raises:
            SubletError: as ``service`` and ``entity``.
        """
        me = self.entity(caller)
        found = await (await self.service()).invited.all()
        return [one for one in found if caller.kind == "human" or set(one.whom) == {me}]

    async def room_change(self, caller: Subject, room_id: RoomId, entity: EntityId | None = None) -> RoomChange:
        """Return what is told of a change to a room: its name, and whom it is about, the caller by default.

        Raises:
            SubletError: as ``call``.
        """
        found = await self.call(caller, room_calls.get, room_id=room_id)
        whom = entity or self.entity(caller)
        return RoomChange(room_id=room_id, name=found["name"], entity=whom, apart=self.apart(whom))

    async def send(
        self,
        caller: Subject,
        room_id: RoomId,
        words: Words,
        media: str | dict[str, str] | None,
        files: list[str] | None = None,
    ) -> message_calls.RefSent:
        """Say something in a room, and return its ref.

        Args:
            caller: who says it.
            room_id: where.
            words: what; ``reply_room`` is an id here.
            media: the file that the message comes with (EXT-10): its hash, or that and what to call it.
            files: further ones, which its content names.

        Raises:
            SubletError: as ``call``.
        """
        answered: str | dict[str, str] | None = words.reply_to
        if words.reply_to is not None and words.reply_room is not None:
            answered = {"ref_id": words.reply_to, "room_id": words.reply_room}
        given = {"reply_to": answered, "thread": words.thread, "channels": words.channels, "media": media}
        arguments: dict[str, Any] = {"body": words.body, "format": f"{MEDIA_TYPE}{words.format}"}
        if ext := {name: value for name, value in given.items() if value}:
            arguments["ext"] = ext
        if files:
            arguments["media_refs"] = files
        return await self.call(caller, message_calls.send, room_id=room_id, **arguments)

    async def page(
        self,
        caller: Subject,
        room_id: RoomId | None,
        *,
        thread: str | None,
        channel: str | None,
        limit: int,
        before: str | None,
        peek: bool = False,
    ) -> message_calls.RefPage:
        """Return a page of a room, or of a thread or a channel of it; of a channel over all rooms where that is None.

        Args:
            caller: who reads.
            room_id: the room.
            thread: the first message of the thread.
            channel: the channel.
            limit: how many messages.
            before: the cursor of the page after it.
            peek: whether reading a room marks nothing as read.

        Raises:
            SubletError: as ``call``.
        """
        if channel is not None:
            return await self.call(
                caller, message_calls.list_channel, channel=channel, limit=limit, before=before, room_id=room_id
            )
        assert room_id is not None, "only channels are over all rooms"
        if thread is not None:
            return await self.call(
                caller, message_calls.list_threads, room_id=room_id, root=thread, limit=limit, before=before
            )
        return await self.call(
            caller, message_calls.list_timeline, room_id=room_id, limit=limit, before=before, peek=peek
        )

    async def receipts(
        self, caller: Subject, room_id: RoomId, ref_id: str, until: str | None, seconds: float
    ) -> MessageReceipts:
        """Return how far a message of the caller's has come, after a while in which it may come as far as ``until``.

        Raises:
            SubletError: ``NOT_FOUND``: the caller has sent no such message.
        """
        from sublet.messaging.delivery.receipts import Receipt

        delivery, me = (await self.service()).delivery, self.entity(caller)
        wanted = Receipt(until) if until is not None else None
        return receipts_view(await delivery.receipts(me, room_id, ref_id, wanted, seconds))


def may_read(gate: Gatekeeper, caller: Subject, room_id: str) -> bool:
    """Tell whether a list may hold something of a room; nothing is written down."""
    return gate.foresee(caller, Action.ROOM_READ, Resource(room_id)).decision.allowed
