"""Signs what is sent to a node, and opens what comes from one; nothing gets past it that was not proven."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from nacl.signing import SigningKey

from sublet.federation.limits import Rate
from sublet.federation.neighbours import Neighbour, Neighbours
from sublet.federation.ports import Carrier
from sublet.federation.settings import Settings
from sublet.protocol.bounded_json import BadJson, parse_json
from sublet.protocol.canonical import JsonValue
from sublet.protocol.chain import Chain
from sublet.protocol.federation.addresses import NodeName, broadcast_room, federation_room
from sublet.protocol.federation.envelope import (
    MAX_ENVELOPE_BYTES,
    MAX_EVENTS,
    MAX_VALUES,
    Envelope,
    ServerPage,
    read_envelope,
    read_server,
    seal,
    seal_server,
)
from sublet.protocol.federation.errors import FederationCode, TaskRefused
from sublet.protocol.federation.events import (
    AgentMessage,
    AgentRegistered,
    AgentUnregistered,
    FederationEvent,
    Heartbeat,
    StatusUpdate,
)
from sublet.protocol.federation.retrying import DEFAULT_RETRY_POLICY, RetryPolicy
from sublet.protocol.text import clean_line

ENVELOPES_A_SECOND: Final = 20.0
ENVELOPES_AT_ONCE: Final = 400.0
BYTES_A_SECOND: Final = float(1 << 20)
BYTES_AT_ONCE: Final = float(16 << 20)
BATCH_BYTES: Final = MAX_ENVELOPE_BYTES // 2
BATCH_VALUES: Final = MAX_VALUES // 2
"""Of events that are sent at once; what is around them takes some more."""
PAGE_DAYS: Final = 7
MAX_RECEIPT_BYTES: Final = 4 << 10
MAX_WHY_CHARS: Final = 300
"""Of why something is refused: with as many receipts keep to their bound, whatever characters these are."""
NOBODY: Final = Chain()
SYSTEM: Final = "node"
"""Who speaks for a node itself, in the ``sender`` of what tells of its agents."""
_TOLD_TO_ALL: Final = (AgentRegistered, AgentUnregistered, Heartbeat, StatusUpdate, AgentMessage)


@dataclass(frozen=True, slots=True)
class Own:
    """This node.

    Args:
        name: what it calls itself.
        key: signs.
        node_id: of that key.
        fingerprint: of that key.
    """

    name: NodeName
    key: SigningKey
    node_id: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a node answers to an envelope: that it has taken it, and nothing about what comes of it.

    Args:
        accepted: whether it was taken.
        known: False where it tells of agents that the other side has not heard of.
        refusal: why it was not taken.
    """

    accepted: bool
    known: bool = True
    refusal: TaskRefused | None = None


class Post:
    """Sends and receives envelopes.

    Args:
        own: this node.
        settings: as they are now.
        neighbours: from whom anything is taken.
        carrier: carries bytes.
        steady: seconds that never go back.
        wall: Unix seconds.
    """

    def __init__(
        self,
        own: Own,
        settings: Callable[[], Settings],
        neighbours: Neighbours,
        carrier: Carrier,
        steady: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._own = own
        self._settings = settings
        self._neighbours = neighbours
        self._carrier = carrier
        self._wall = wall
        self._chance = random.SystemRandom().random
        self._envelopes = Rate(ENVELOPES_A_SECOND, ENVELOPES_AT_ONCE, steady)
        self._bytes = Rate(BYTES_A_SECOND, BYTES_AT_ONCE, steady)

    def page(self, link: str) -> bytes:
        """Return the signed page that tells who we are.

        Args:
            link: node id of the key that the link has proven, whose share is used.

        Raises:
            TaskRefused: no key is pinned for it, or it asks too often.
        """
        if self._neighbours.by_id(link) is None:
            raise _unknown()
        if not self._envelopes.take(link):
            raise _too_much()
        until = int((self._wall() + PAGE_DAYS * 86_400) * 1000)
        spaces = (self._settings().room.namespace,)
        public = bytes(self._own.key.verify_key)
        return seal_server(ServerPage(self._own.name, public, until, spaces), self._own.key)

    async def introduce(self, neighbour: Neighbour) -> bool:
        """Ask a node who it is, and take its name; return False where it is not reached.

        Raises:
            TaskRefused: it goes by another key or another's name, or is in another namespace.
        """
        if not self._neighbours.holds(neighbour):
            return False
        raw = await self._carrier.ask(neighbour.node, "server", b"")
        if raw is None:
            return False
        refused = _receipt(raw).refusal if b'"accepted"' in raw[:MAX_RECEIPT_BYTES] else None
        if refused is not None:
            raise TaskRefused(refused.code, f"it does not take us: {refused.message}", refused.reason)
        page = read_server(raw, neighbour.node.public_key, now=self._wall())
        space = self._settings().room.namespace
        if space not in page.namespaces:
            told = ", ".join(clean_line(one, 40) for one in page.namespaces) or "none"
            raise TaskRefused(FederationCode.NODE_UNREACHABLE, f"it is in another namespace ({told}, not {space})")
        await self._neighbours.called(neighbour, page.name)
        return True

    async def send(
        self,
        neighbour: Neighbour,
        events: Sequence[FederationEvent],
        *,
        sender: str = SYSTEM,
        answers: str = "",
        chain: Chain = NOBODY,
        retry: RetryPolicy = DEFAULT_RETRY_POLICY,
        to_all: bool = False,
    ) -> Receipt | None:
        """Send events, in as many envelopes as it takes; return the last receipt, None where the node is not reached.

        Sending again is safe: the same bytes go, and the other side knows their id. Nothing is sent while federation is
        off, nor to a node whose key is pinned no more.

        Args:
            neighbour: to whom; its name is known.
            events: what.
            sender: which agent of ours speaks.
            answers: id of the envelope that this answers.
            chain: who called until here.
            retry: how often it is tried.
            to_all: whether it is said in our broadcast room, and not in the node's own.

        Raises:
            TaskRefused: ``INVALID_PAYLOAD``: an event has no canonical form, or is too large;
                ``NODE_UNREACHABLE``: nobody knows its name any more.
        """
        known = True
        for some in in_envelopes(events):
            raw = self._sealed(neighbour, some, sender, answers, chain, to_all=to_all)
            one = await self._sent(neighbour, raw, retry)
            if one is None or not one.accepted:
                return one
            known = known and one.known
        return Receipt(accepted=True, known=known)

    async def _sent(self, neighbour: Neighbour, raw: bytes, retry: RetryPolicy) -> Receipt | None:
        pauses = retry.pauses(self._chance)
        while self._settings().on and self._neighbours.holds(neighbour):
            answer = await self._carrier.ask(neighbour.node, "event", raw)
            if answer is not None:
                return _receipt(answer)
            pause = next(pauses, None)
            if pause is None:
                return None
            await asyncio.sleep(pause)
        return None

    def _sealed(
        self,
        neighbour: Neighbour,
        events: Sequence[FederationEvent],
        sender: str,
        answers: str,
        chain: Chain,
        *,
        to_all: bool,
    ) -> bytes:
        if neighbour.name is None:
            raise TaskRefused(FederationCode.NODE_UNREACHABLE, neighbour.refused or "nobody knows its name", "name")
        try:
            raw = seal(
                Envelope(
                    event_id=f"${uuid.uuid4()}",
                    room_id=broadcast_room(self._own.name)
                    if to_all
                    else federation_room(self._settings().room.namespace, neighbour.name),
                    sender=f"@{sender}:{self._own.name}",
                    events=tuple(events),
                    origin=self._own.name,
                    at_ms=int(self._wall() * 1000),
                    node=self._own.node_id,
                    recipient=neighbour.node.fingerprint,
                    answers=answers,
                    chain=chain,
                ),
                self._own.key,
            )
        except ValueError as error:
            raise TaskRefused(FederationCode.INVALID_PAYLOAD, f"it can't be sent: {error}") from None
        if len(raw) > MAX_ENVELOPE_BYTES:
            said = f"it can't be sent: it is larger than {MAX_ENVELOPE_BYTES} bytes"
            raise TaskRefused(FederationCode.INVALID_PAYLOAD, said, "size")
        return raw

    async def open(self, raw: bytes, link: str) -> tuple[Neighbour, Envelope] | None:
        """Return whose envelope came, with what is in it; None where it came before.

        Args:
            raw: as it came.
            link: node id of the key that the link has proven. It may speak for itself alone, and its share is used.

        Raises:
            TaskRefused: it is not taken, and nothing has come of it.
        """
        neighbour = self._neighbours.by_id(link)
        if neighbour is None:
            raise _unknown()
        if not self._envelopes.take(link) or not self._bytes.take(link, len(raw)):
            raise _too_much()
        found = read_envelope(raw)
        if found.node != link:
            raise TaskRefused(FederationCode.INVALID_PAYLOAD, "it is signed by another node than it comes from", "node")
        envelope = found.verified(neighbour.node.public_key, recipient=self._own.fingerprint, now=self._wall())
        if envelope.event_id in neighbour.seen:
            return None
        await self._neighbours.called(neighbour, envelope.origin)
        self._check_rooms(envelope)
        self.check_paired(neighbour)
        neighbour.heard = self._wall()
        return neighbour, envelope

    def check_paired(self, neighbour: Neighbour) -> None:
        """Return if the key of a node is pinned at this moment.

        Raises:
            TaskRefused: it was forgotten meanwhile.
        """
        if not self._neighbours.holds(neighbour):
            raise _unknown()

    def _check_rooms(self, envelope: Envelope) -> None:
        space = self._settings().room.namespace
        ours, theirs = federation_room(space, self._own.name), broadcast_room(envelope.origin)
        to_all = envelope.room_id == theirs and all(isinstance(one, _TOLD_TO_ALL) for one in envelope.events)
        if envelope.room_id != ours and not to_all:
            raise TaskRefused(FederationCode.INVALID_PAYLOAD, "its room is none of this node", "room")
        if envelope.sender.partition(":")[2] != envelope.origin:
            raise TaskRefused(FederationCode.INVALID_PAYLOAD, "its sender is an agent of another node", "sender")
        presence = (AgentRegistered, AgentUnregistered, Heartbeat, StatusUpdate)
        if len(envelope.events) > 1 and not all(isinstance(one, presence) for one in envelope.events):
            raise TaskRefused(FederationCode.INVALID_PAYLOAD, "only what tells of agents is sent many at once", "batch")


def in_envelopes(events: Sequence[FederationEvent]) -> Iterator[Sequence[FederationEvent]]:
    """Yield events in their order, as many at once as one envelope holds by number, bytes and values."""
    some: list[FederationEvent] = []
    size = values = 0
    for event in events:
        raw = event.model_dump_json()
        # As read_envelope counts them; those in texts are counted too, which is too many rather than too few.
        its = sum(map(raw.count, ",:[{"))
        full = len(some) >= MAX_EVENTS or size + len(raw) > BATCH_BYTES or values + its > BATCH_VALUES
        if some and full:
            yield some
            some, size, values = [], 0, 0
        some.append(event)
        size, values = size + len(raw), values + its
    if some:
        yield some


def _unknown() -> TaskRefused:
    return TaskRefused(FederationCode.INVALID_PAYLOAD, "no key is pinned here for that node", "unknown")


def _too_much() -> TaskRefused:
    return TaskRefused(FederationCode.AGENT_BUSY, "more comes of that node than is taken", "rate")


def receipt_bytes(event_id: str, refusal: TaskRefused | None = None, *, known: bool = True) -> bytes:
    """Return what is answered to an envelope."""
    said: dict[str, JsonValue] = {"accepted": refusal is None, "event_id": event_id, "known": known}
    if refusal is not None:
        said |= {"error": str(refusal.code), "message": refusal.message[:MAX_WHY_CHARS], "reason": refusal.reason}
    return json.dumps(said).encode()


def _receipt(raw: bytes) -> Receipt:
    try:
        said = parse_json(raw, max_bytes=MAX_RECEIPT_BYTES, values=64)
    except BadJson:
        said = None
    if not isinstance(said, dict):
        return Receipt(accepted=False, refusal=TaskRefused(FederationCode.INVALID_PAYLOAD, "its answer is none"))
    if said.get("accepted") is True:
        return Receipt(accepted=True, known=said.get("known") is not False)
    code, reason = said.get("error"), said.get("reason")
    named = isinstance(code, str) and code in FederationCode.__members__
    known = FederationCode(str(code)) if named else FederationCode.INVALID_PAYLOAD
    message = clean_line(str(said.get("message", "")), 500) or "it did not say why"
    return Receipt(
        accepted=False, refusal=TaskRefused(known, message, clean_line(reason, 40) if isinstance(reason, str) else "")
    )
