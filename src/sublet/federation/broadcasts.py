"""What a node says to all, and what others say so (``to_agent: null``, "广播消息").

Who hears it are the members of the room ``!agent-broadcast:SENDER``: the nodes that are paired with the sender, or that
its federation.toml lists, in its namespace and trusted, and that are reached at that moment. A receiver takes it in
that room alone, from a node that is a member for it as well. Nobody passes it on, and it is not kept for whoever is not
there.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio

from sublet.federation.limits import Rate
from sublet.federation.neighbours import Neighbour, Neighbours
from sublet.federation.ports import Admission, Telling
from sublet.federation.post import Own, Post
from sublet.federation.settings import Settings
from sublet.protocol.federation.addresses import broadcast_room
from sublet.protocol.federation.envelope import Envelope
from sublet.protocol.federation.errors import FederationCode, TaskRefused
from sublet.protocol.federation.events import CANCEL, PROGRESS, AgentMessage
from sublet.protocol.federation.retrying import ONCE
from sublet.protocol.text import clean
from sublet.protocol.times import rfc3339_of

ANNOUNCEMENT: Final = "announcement"
MAX_SAID_CHARS: Final = 4_000
"""Of what is said to all; more of what others say is cut."""
SAID_A_SECOND: Final = 0.1
SAID_AT_ONCE: Final = 20.0
"""Messages to all of one node."""
AT_ONCE: Final = 8
"""Nodes that are told at one time."""
SEND_SECONDS: Final = 10.0
OF_TASKS: Final = (PROGRESS, CANCEL)
"""Kinds of messages that are about one task, and so never for all."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One member of the room: what it is called here, and why it has not heard; empty where it has."""

    alias: str
    why_not: str


class Broadcasts:
    """See the module.

    Args:
        own: this node.
        settings: as they are now.
        neighbours: the other nodes.
        post: sends.
        trusts: whether anything but presence is exchanged with a node.
        admission: asks policy.
        tell: the log of events, which keeps what was said.
        steady: seconds that never go back.
        wall: Unix seconds.
    """

    def __init__(
        self,
        own: Own,
        settings: Callable[[], Settings],
        neighbours: Neighbours,
        post: Post,
        trusts: Callable[[Neighbour], bool],
        admission: Admission,
        tell: Telling,
        steady: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._own = own
        self._settings = settings
        self._neighbours = neighbours
        self._post = post
        self._trusts = trusts
        self._admission = admission
        self._tell = tell
        self._wall = wall
        self._rate = Rate(SAID_A_SECOND, SAID_AT_ONCE, steady)

    async def say(
        self, sender: str, text: str, kind: str, visible: Callable[[Neighbour], bool]
    ) -> tuple[AgentMessage, list[Heard]]:
        """Say something to all who are members of our room; return it, and who has heard it.

        Args:
            sender: which agent of ours speaks, or the person.
            text: what.
            kind: ``message_type``.
            visible: whether whoever speaks may know of a node.
        """
        said = AgentMessage(
            message_id=str(uuid.uuid4()),
            from_agent=f"{sender}@{self._own.name}",
            to_agent=None,
            message_type=kind,
            payload={"message": text},
            timestamp=rfc3339_of(self._wall()),
        )
        members = [one for one in self._neighbours.all() if one.greeted and self._trusts(one) and visible(one)]
        heard: list[Heard] = []
        limit = anyio.CapacityLimiter(AT_ONCE)

        async def send(one: Neighbour) -> None:
            why = "it did not answer in time"
            async with limit:
                with anyio.move_on_after(SEND_SECONDS):
                    why = await self._sent(one, said, sender)
            heard.append(Heard(one.node.alias, why))  # two nodes may be called alike

        async with anyio.create_task_group() as group:
            for one in members:
                group.start_soon(send, one)
        await self._tell("message", self._event(said, text, None))
        return said, sorted(heard, key=lambda one: one.alias)

    async def _sent(self, neighbour: Neighbour, said: AgentMessage, sender: str) -> str:
        """Send it to one; return why it was not taken, or nothing."""
        try:
            receipt = await self._post.send(neighbour, [said], sender=sender, to_all=True, retry=ONCE)
        except TaskRefused as refusal:
            return refusal.message
        if receipt is None:
            return "it is not reached"
        return "" if receipt.refusal is None else receipt.refusal.message

    async def take(self, neighbour: Neighbour, envelope: Envelope, message: AgentMessage) -> None:
        """Take what another node says to all.

        Raises:
            TaskRefused: it is in another room, of somebody else, too often, policy takes none of it, or its node was
                forgotten meanwhile.
        """
        agent, _, node = message.from_agent.partition("@")
        if envelope.room_id != broadcast_room(envelope.origin):
            raise TaskRefused(FederationCode.INVALID_PAYLOAD, "what is for all is said in the sender's room", "room")
        if node != envelope.origin or envelope.sender != f"@{agent}:{node}":
            raise TaskRefused(FederationCode.INVALID_PAYLOAD, "from_agent is an agent of another node", "owner")
        if message.message_type in OF_TASKS:
            raise TaskRefused(FederationCode.INVALID_PAYLOAD, "what is of a task is never for all", "message_type")
        if not self._trusts(neighbour):
            raise TaskRefused(FederationCode.AGENT_NOT_FOUND, "this node is no member of that room", "trusted")
        space = self._settings().room.namespace
        if not await self._admission.hears(neighbour.node, envelope.origin, message.event_type, space):
            raise TaskRefused(FederationCode.AGENT_NOT_FOUND, "policy takes no such events of that node", "policy")
        self._post.check_paired(neighbour)
        if not self._rate.take(neighbour.node.id):
            raise TaskRefused(FederationCode.AGENT_BUSY, "that node says too much to all", "rate")
        await self._tell("message", self._event(message, _text(message), neighbour.node.alias))

    @staticmethod
    def _event(message: AgentMessage, text: str, peer: str | None) -> dict[str, str | None]:
        """Return what the log keeps; ``peer`` is None for what we have said."""
        return {
            "message_id": message.message_id,
            "from": message.from_agent,
            "message_type": message.message_type,
            "text": clean(text, MAX_SAID_CHARS),
            "peer": peer,
        }


def _text(message: AgentMessage) -> str:
    """Return what a message says: its ``message``, or all of another payload as JSON."""
    payload = message.payload
    if isinstance(payload, dict) and isinstance(payload.get("message"), str):
        return str(payload["message"])
    return json.dumps(payload, ensure_ascii=False)
