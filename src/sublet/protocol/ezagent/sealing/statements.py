"""What devices say of a room's keys: that an epoch begins, whom its key was handed to, who lacks it.

``version u8 · kind u8 · room 16 bytes · signer 32 bytes · number u32 · after 16 bytes · opener 16 bytes · commitment 32
bytes · boxes u16 · learned u16 · unknown u16 · (device 16 bytes · box 80 bytes)* · (removal 16 bytes)* · signature``. A
box is the epoch's key in a libsodium sealed box for the device's X25519 key.

Rules: an epoch's id is a hash of its room, its number, the epoch before, who opened it and a commitment to its key. So
whoever opens a box sees whether it holds *the* key of that epoch, and nobody gives two members two keys under one name.
Every statement names all of that, and so can be understood whatever came before it. Who opens an epoch tells which
removals of members and devices it knows, as far as that is not what the epoch before tells: so nobody who has heard of
fewer hands the key to somebody who is gone. Weak: who is in a room by how many
devices is seen by whoever sees these.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import ClassVar, Final

from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox
from nacl.signing import SigningKey

from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.ids import RoomId, is_room_id
from sublet.protocol.ezagent.sealing.wire import (
    ID_BYTES,
    KEY_BYTES,
    NO_ID,
    SIGNATURE_BYTES,
    DeviceId,
    Reader,
    SignedFrame,
    Signing,
    device_id,
    short_hash,
)

VERSION: Final = 1
BOX_BYTES: Final = KEY_BYTES + 48
MAX_BOXES: Final = 512
"""In one statement; a larger room is handed its keys by several."""
MAX_NUMBER: Final = (1 << 32) - 1
MAX_REMOVALS: Final = 1_024
"""Of which one statement tells that they were learned, or are unknown."""
MAX_STATEMENT_BYTES: Final = 256 + MAX_BOXES * (ID_BYTES + BOX_BYTES) + 2 * MAX_REMOVALS * ID_BYTES
_HEAD: Final = struct.Struct(f">BB16s{KEY_BYTES}sI{ID_BYTES}s{ID_BYTES}s{KEY_BYTES}sHHH")
_BOX: Final = struct.Struct(f">{ID_BYTES}s{BOX_BYTES}s")
_SIGNED: Final = Signing(b"sublet/room-key/1\n", "a statement about a key")
_EPOCH: Final = b"sublet/epoch/1"
_COMMIT: Final = b"sublet/commit/1"


class Kind(IntEnum):
    """What a statement says."""

    OPENED = 1
    """An epoch begins, and the boxes hold its key."""
    HANDED = 2
    """The boxes hold the key of an epoch for those who lacked it."""
    WANTED = 3
    """The signer lacks the key of an epoch."""


@dataclass(frozen=True, slots=True)
class EpochName:
    """Everything that an epoch is, but for its key.

    Args:
        room: the room.
        number: one more than that of the epoch before; 1 for the first.
        after: id of the epoch before, ``NO_ID`` for the first.
        opener: device that has made the key.
        commitment: from ``commit``.
    """

    room: RoomId
    number: int
    after: bytes
    opener: DeviceId
    commitment: bytes

    @property
    def id(self) -> bytes:
        """Return what a sealed envelope names the epoch by."""
        room = bytes.fromhex(self.room.replace("-", ""))
        number = self.number.to_bytes(4, "big")
        return short_hash(_EPOCH, room, number, self.after, self.opener, self.commitment)

    def is_key(self, key: bytes) -> bool:
        """Tell whether bytes are the epoch's key."""
        return len(key) == KEY_BYTES and commit(key) == self.commitment


def commit(key: bytes) -> bytes:
    """Return what stands for a key of ``KEY_BYTES`` random bytes, tells nothing of it, and stands for no other."""
    return hashlib.blake2b(b"", digest_size=KEY_BYTES, key=key, person=_COMMIT).digest()


@dataclass(frozen=True, slots=True)
class KeyStatement(SignedFrame):
    """A proven statement: ``parse_statement`` has verified its signature."""

    ID: ClassVar[bytes] = b"sublet/key-stmt"

    kind: Kind
    epoch: EpochName
    signer_key: bytes
    boxes: tuple[tuple[DeviceId, bytes], ...] = ()
    learned: frozenset[bytes] = frozenset()
    """Removals that its signer knows, and the opener of the epoch before did not."""
    unknown: frozenset[bytes] = frozenset()
    """Removals that the opener of the epoch before knew, and its signer does not."""
    signature: bytes = b""

    def box_for(self, device: DeviceId) -> bytes | None:
        """Return the box for a device, or None where there is none."""
        return next((box for one, box in self.boxes if one == device), None)

    def signed(self) -> bytes:
        """Return the bytes that the signature covers."""
        epoch = self.epoch
        room = bytes.fromhex(epoch.room.replace("-", ""))
        head = _HEAD.pack(
            VERSION,
            self.kind,
            room,
            self.signer_key,
            epoch.number,
            epoch.after,
            epoch.opener,
            epoch.commitment,
            len(self.boxes),
            len(self.learned),
            len(self.unknown),
        )
        boxes = (_BOX.pack(device, box) for device, box in self.boxes)
        return b"".join((head, *boxes, *sorted(self.learned), *sorted(self.unknown)))


def make_statement(
    kind: Kind,
    epoch: EpochName,
    signer: SigningKey,
    key: bytes = b"",
    seal_keys: Mapping[DeviceId, bytes] | None = None,
    learned: frozenset[bytes] = frozenset(),
    unknown: frozenset[bytes] = frozenset(),
) -> KeyStatement:
    """Return a signed statement.

    Args:
        kind: what it says.
        epoch: the epoch.
        signer: key of our own device.
        key: of the epoch, where it is handed to somebody.
        seal_keys: X25519 key of each device that gets it, at most ``MAX_BOXES``.
        learned: ids of removals, where an epoch is opened; at most ``MAX_REMOVALS``.
        unknown: as many of the others.

    Raises:
        ValueError: too many devices or removals.
    """
    if len(seal_keys or ()) > MAX_BOXES or max(len(learned), len(unknown)) > MAX_REMOVALS:
        raise ValueError("a statement of too many boxes or removals")
    boxes = tuple(
        (device, SealedBox(PublicKey(seal_key)).encrypt(key)) for device, seal_key in sorted((seal_keys or {}).items())
    )
    bare = KeyStatement(kind, epoch, bytes(signer.verify_key), boxes, learned, unknown)
    return replace(bare, signature=_SIGNED.sign(signer, bare.signed()))


def parse_statement(raw: bytes) -> KeyStatement:
    """Return the statement in ``raw``, proven: the device whose key it shows has signed it.

    Raises:
        Refused: ``OVERSIZED``, ``MALFORMED``, or ``BAD_SIGNATURE``.
    """
    if len(raw) > MAX_STATEMENT_BYTES:
        raise Refused(Refusal.OVERSIZED, f"a statement of {len(raw)} bytes")
    reader = Reader(raw)
    head = _HEAD.unpack(reader.take(_HEAD.size))
    version, number, room, signer, count, after, opener, commitment, boxes, learned, unknown = head
    if version != VERSION or number not in (Kind.OPENED, Kind.HANDED, Kind.WANTED):
        raise malformed("a statement of another form")
    kind, digits = Kind(number), room.hex()
    room_id = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    if not is_room_id(room_id) or (count == 1) != (after == NO_ID) or not count:
        raise malformed("a statement of no epoch")
    if boxes > MAX_BOXES or (kind is Kind.WANTED) != (not boxes):
        raise malformed("a statement with too many boxes, or without any")
    if max(learned, unknown) > (MAX_REMOVALS if kind is Kind.OPENED else 0):
        raise malformed("a statement of too many removals")
    found = tuple(_box(reader) for _ in range(boxes))
    devices = [device for device, _ in found]
    if devices != sorted(set(devices)):
        raise malformed("a statement with boxes out of order")
    removals = _ids(reader, learned), _ids(reader, unknown)
    epoch = EpochName(room_id, count, after, opener, commitment)
    if kind is Kind.OPENED and opener != device_id(signer):
        raise malformed("an epoch that somebody else begins")
    signature = reader.take(SIGNATURE_BYTES)
    reader.end()
    statement = KeyStatement(kind, epoch, signer, found, *removals, signature)
    _SIGNED.check(signer, statement.signed(), signature)
    return statement


def open_box(statement: KeyStatement, device: DeviceId, seal_keys: tuple[PrivateKey, ...]) -> bytes | None:
    """Return the epoch's key from a device's box; None where there is none, or it holds something else.

    Args:
        statement: which may have a box for the device.
        device: our own.
        seal_keys: its X25519 keys, the newest first.
    """
    box = statement.box_for(device)
    if box is None:
        return None
    for seal_key in seal_keys:
        try:
            key = SealedBox(seal_key).decrypt(box)
        except (CryptoError, ValueError, TypeError):
            continue
        return key if statement.epoch.is_key(key) else None
    return None


def _box(reader: Reader) -> tuple[DeviceId, bytes]:
    device, box = _BOX.unpack(reader.take(_BOX.size))
    return device, box


def _ids(reader: Reader, count: int) -> frozenset[bytes]:
    ids = [reader.take(ID_BYTES) for _ in range(count)]
    if ids != sorted(set(ids)):
        raise malformed("a statement with removals out of order")
    return frozenset(ids)
