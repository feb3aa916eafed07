"""What is sealed on its way out, and opened on its way in; whoever is on the way reads the outer header alone.

Sealed are updates of a room's documents, what goes with them, presence and acknowledgements. Not sealed are the
statements about its keys, whose boxes only their devices open, the config of a room that anybody may look at, and what
somebody without any key says of itself: that it knocks, joins or declines.

Rules: a message that can't be sealed yet waits, within a bound, and never goes out as it is. Whoever is removed hears
of that under the last key that it has. What comes in counts if the device that its header names has signed it and is of
somebody who is in the room, or was. What can't be opened, or is of a device that is not known yet, is asked for, since
answers are sealed for whoever asks.
Weak: what does not fit while it waits is left to the next difference. What comes in without a seal is taken as in any
room: whoever sent it that way has told the bus already. A member whose daemon knows no seals is in such a room, and
reads only what it asks for.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.ports.network import Sample
from sublet.messaging.ports.outbox import Outgoing
from sublet.messaging.rooms.audience import Audience
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.sealing.room_seals import SEALING, RoomSeals, statements_doc
from sublet.messaging.sealing.waiting import Waiting
from sublet.protocol.ezagent.bundle import Bundle, RecordKind, decode_bundle, encode_bundle
from sublet.protocol.ezagent.envelope import unpack
from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.ids import RoomId
from sublet.protocol.ezagent.keys import Channel, DocumentPlace, doc_id, parse_doc_id
from sublet.protocol.ezagent.room.state import Policy
from sublet.protocol.ezagent.sealing import envelope as sealing
from sublet.protocol.ezagent.sealing.wire import NO_ID
from sublet.protocol.ezagent.yjs.decode import decode_update

MAX_HEADS: Final = 16_384
"""Of clients' sealed logs that go on in this process."""
_STATEMENTS: Final = f"/ext/{SEALING}/{Channel.UPDATES}"
_PASSING: Final = frozenset({"ephemeral", "delivery"})


@dataclass(frozen=True, slots=True)
class Opened:
    """What a sample brings, and the documents to ask for where it can't be opened."""

    arrivals: tuple[Arrival, ...] = ()
    wanted: tuple[str, ...] = ()


class Carrying:
    """Seals and opens. Used on the engine's thread.

    Args:
        seals: the keys of rooms.
        rooms: whether anybody may look at a room.
        audience: who hears a room.
        counts: how many samples were refused, by reason.
    """

    def __init__(self, seals: RoomSeals, rooms: RoomStates, audience: Audience, counts: Counter[str]) -> None:
        self._seals = seals
        self._rooms = rooms
        self._audience = audience
        self._counts = counts
        self._waiting = Waiting()
        self._heads: dict[tuple[str, int], bytes] = {}

    def sealed(self, outgoing: Iterable[Outgoing]) -> list[Outgoing]:
        """Return what may go out now: what waited before, then all of this that can be sealed, or need not be.

        What waits is looked at only where something of its room's keys or config is another since the last time.
        """
        waited = self._waiting.take(sorted(self._seals.moved()))
        keys: list[Outgoing] = []
        others: list[Outgoing] = []
        for item in itertools.chain((item for _, item in waited), outgoing):
            if item.key.endswith(_STATEMENTS):
                keys.append(item)  # first, or nobody could open what follows
            else:
                others += self._carried(item)
        return keys + others

    def _carried(self, item: Outgoing) -> list[Outgoing]:
        place = _place(item.key)
        room_id = place.room_id if place is not None else None
        if place is None or room_id is None or not self._seals.is_sealed(room_id):
            return [item]
        is_config = place.kind == "config"
        if is_config and self._rooms.state(room_id).policy in (Policy.OPEN, Policy.KNOCK):
            return [item]
        key = self._seals.writing_key(room_id)
        if is_config and (key is None or self._is_heard_by_removed(room_id, item)):
            key = self._seals.last_key(room_id)
            if key is None and not self._is_ours(room_id):
                return [item]
        if key is None:
            self._waiting.put(room_id, item)
            return []
        return [self._seal(room_id, place, item, *key)]

    def _is_heard_by_removed(self, room_id: RoomId, item: Outgoing) -> bool:
        members = self._audience.hears(doc_id("delivery", room_id=room_id))
        return item.to is None or members is None or not item.to <= members

    def _is_ours(self, room_id: RoomId) -> bool:
        """Tell whether one of ours is a member, which gets a key soon."""
        device = self._seals.device(room_id)
        return device is not None and self._seals.verify_key(room_id, device.id) is not None

    def _seal(self, room_id: RoomId, place: DocumentPlace, item: Outgoing, epoch: bytes, key: bytes) -> Outgoing:
        own = self._seals.device(room_id)
        assert own is not None, "whoever holds a key has a device"
        if place.kind == "delivery":
            plain, where, name = item.payload, sealing.PASSING, doc_id("delivery", room_id=room_id)
        else:
            inner = unpack(item.payload)
            contents = decode_bundle(item.attachment).records if item.attachment else ()
            plain = encode_bundle([(RecordKind.ENVELOPE, item.payload), *contents])
            name, where = inner.doc_id, sealing.PASSING
            if place.kind not in _PASSING:
                update = decode_update(inner.payload)
                head = self._heads.get((name, update.client), NO_ID) if update.items else NO_ID
                where = sealing.place_of(update, inner.payload, key, head)
        made = sealing.seal(own.signing, key, sealing.Header(own.id, name, epoch, where), plain)
        if where.end:
            self._goes_on(name, where.client, made.head_after())
        return replace(item, payload=made.raw, attachment=b"")

    def _goes_on(self, name: str, client: int, head: bytes) -> None:
        self._heads.pop((name, client), None)
        self._heads[name, client] = head
        if len(self._heads) > MAX_HEADS:
            del self._heads[next(iter(self._heads))]

    def opened(self, sample: Sample) -> Opened:
        """Return what a sample brings; where a member has sealed it and its key is not here, what it tells of."""
        if not sealing.is_sealed(sample.payload):
            if self._seals.is_of_removed(sample.payload):
                self._counts[Refusal.BAD_SIGNATURE] += 1
                return Opened()
            return Opened((Arrival(sample.payload, _contents(sample.attachment)),))
        try:
            header, bundle = self._open(sample.payload)
            if bundle is None:
                place = parse_doc_id(header.document)
                wanted = (header.document,) if place.kind not in _PASSING else ()
                return Opened(wanted=(*wanted, statements_doc(str(place.room_id))))
            envelopes = bundle.of(RecordKind.ENVELOPE)
            if len(envelopes) != 1:
                raise malformed("not one envelope in a sealed one")
            return Opened((Arrival(envelopes[0], tuple(bundle.of(RecordKind.CONTENT))),))
        except Refused as refused:
            self._counts[refused.refusal] += 1
            return Opened()

    def opened_bundle(self, raw: bytes) -> bytes:
        """Return a bundle that was published in passing, opened if it is sealed.

        Raises:
            Refused: it is sealed and does not open.
        """
        if not sealing.is_sealed(raw):
            return raw
        _, bundle = self._open(raw)
        if bundle is None:
            raise Refused(Refusal.UNKNOWN_SIGNER, "sealed under a key, or by a device, that is not here")
        return encode_bundle(bundle.records)

    def _open(self, raw: bytes) -> tuple[sealing.Header, Bundle | None]:
        """Return what is sealed, held to its header; None where the key is not here, or the device is not known yet.

        Of what a stranger makes up nothing is asked for: a member has signed it, or somebody who has the room's key.
        """
        sealed = sealing.unpack(raw)
        header, place = sealed.header, parse_doc_id(sealed.header.document)
        if place.room_id is None:
            raise Refused(Refusal.UNKNOWN_DOCUMENT, "a sealed update of no room")
        if self._seals.is_removed(place.room_id, header.device):
            raise Refused(Refusal.UNKNOWN_SIGNER, "sealed by a device that was removed")
        verify_key = self._seals.known_key(place.room_id, header.device)
        if verify_key is not None:
            sealing.verify(sealed, verify_key)
        key = self._seals.reading_key(place.room_id, header.epoch)
        if key is None and self._seals.verify_key(place.room_id, header.device) is None:
            raise Refused(Refusal.UNKNOWN_SIGNER, "sealed by nobody who is a member")
        if key is None:
            return header, None
        bundle = decode_bundle(sealing.open_sealed(sealed, key))
        for envelope in bundle.of(RecordKind.ENVELOPE):
            inner = unpack(envelope)
            if place.kind in _PASSING:
                if (inner.doc_id, header.place) != (header.document, sealing.PASSING):
                    raise Refused(Refusal.FOREIGN_KEY, "the header of what passes tells of something else")
            else:
                sealing.check_told(header, inner.doc_id, decode_update(inner.payload), inner.payload, key)
        return header, bundle if verify_key is not None else None


def _place(key: str) -> DocumentPlace | None:
    for channel in Channel:
        key = key.removesuffix(f"/{channel}")
    try:
        return parse_doc_id(key)
    except Refused:
        return None


def _contents(attachment: bytes) -> tuple[bytes, ...]:
    try:
        return tuple(decode_bundle(attachment).of(RecordKind.CONTENT)) if attachment else ()
    except Refused:
        return ()
