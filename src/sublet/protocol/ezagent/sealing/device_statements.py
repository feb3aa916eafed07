"""What an entity's devices say of each other, each statement signed by one of them (ezagent 4.1, "device keys").

``version u8 · kind u8 · entity u16+bytes · signer 32 bytes · previous 16 bytes · subject 32 bytes · rest · signature``.
The rest of an *add* is a name, the new device's sealing key and its own signature, so that nobody adds a key that it
does not hold; of a *remove* the last statement of the removed device that was known; of a *renew* the sealing key that
the signer has from now on.

Rules: each device's statements are a chain, ``previous`` being the id of the one before, so that a removal can name
how much of it counts, and nothing that is made up later stands before it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import ClassVar, Final

from nacl.exceptions import CryptoError
from nacl.public import PublicKey, SealedBox
from nacl.signing import SigningKey

from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.ids import MAX_ENTITY_CHARS, EntityId, checked_entity_id
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
    with_length,
)

VERSION: Final = 1
MAX_NAME_BYTES: Final = 64
MAX_STATEMENT_BYTES: Final = 1_024
_KIND: Final = struct.Struct(">BB")
_KEYS: Final = struct.Struct(f">{KEY_BYTES}s{ID_BYTES}s{KEY_BYTES}s")
_SIGNED: Final = Signing(b"sublet/devices/1\n", "a device's statement")
_HELD: Final = Signing(b"sublet/device-held/1\n", "that a new device holds its key")


class Kind(IntEnum):
    """What a statement does."""

    ADD = 1
    REMOVE = 2
    RENEW = 3


@dataclass(frozen=True, slots=True)
class DeviceStatement(SignedFrame):
    """A proven statement: ``parse_statement`` has verified each signature in it."""

    ID: ClassVar[bytes] = b"sublet/dev-stmt"

    kind: Kind
    entity: EntityId
    signer_key: bytes
    previous: bytes
    subject_key: bytes
    name: str = ""
    seal_key: bytes = b""
    held: bytes = b""
    """By which the new device shows that it holds its key."""
    seen: bytes = NO_ID
    signature: bytes = b""

    @property
    def subject(self) -> DeviceId:
        """Return the id of the device that it is about."""
        return device_id(self.subject_key)

    def signed(self) -> bytes:
        """Return the bytes that the signature covers."""
        head = _KIND.pack(VERSION, self.kind) + with_length(self.entity.encode())
        keys = _KEYS.pack(self.signer_key, self.previous, self.subject_key)
        rest = {
            Kind.ADD: with_length(self.name.encode()) + self.seal_key + self.held,
            Kind.REMOVE: self.seen,
            Kind.RENEW: self.seal_key,
        }
        return head + keys + rest[self.kind]


def prove_held(device: SigningKey, entity: EntityId, seal_key: bytes) -> bytes:
    """Return by what a new device shows an existing one that it holds its key, and wants to speak for an entity."""
    return _HELD.sign(device, with_length(entity.encode()) + seal_key)


def add(
    signer: SigningKey, entity: EntityId, previous: bytes, device: bytes, name: str, seal_key: bytes, held: bytes
) -> DeviceStatement:
    """Return the statement of an existing device that another one speaks for its entity too.

    Args:
        signer: key of the existing device.
        entity: whose devices they are.
        previous: id of the signer's statement before; ``NO_ID`` for its first.
        device: raw public key of the new device.
        name: for people, at most ``MAX_NAME_BYTES``.
        seal_key: the new device's X25519 key, for which rooms' keys are sealed.
        held: from ``prove_held``.

    Raises:
        ValueError: a name that is too long, or can't be printed.
    """
    if len(name.encode()) > MAX_NAME_BYTES or not name.isprintable():
        raise ValueError("a device's name is too long, or can't be printed")
    bare = DeviceStatement(Kind.ADD, entity, bytes(signer.verify_key), previous, device, name, seal_key, held)
    return _signed(signer, bare)


def remove(signer: SigningKey, entity: EntityId, previous: bytes, device: bytes, seen: bytes) -> DeviceStatement:
    """Return the statement that a device speaks for its entity no more.

    Args:
        signer: key of an existing device, which may be the removed one.
        entity: whose devices they are.
        previous: id of the signer's statement before.
        device: raw public key of the device that goes.
        seen: id of its last statement that counts; ``NO_ID`` where none does.
    """
    return _signed(signer, DeviceStatement(Kind.REMOVE, entity, bytes(signer.verify_key), previous, device, seen=seen))


def renew(signer: SigningKey, entity: EntityId, previous: bytes, seal_key: bytes) -> DeviceStatement:
    """Return the statement of a device that rooms' keys are to be sealed for another X25519 key of its from now on."""
    own = bytes(signer.verify_key)
    return _signed(signer, DeviceStatement(Kind.RENEW, entity, own, previous, own, seal_key=seal_key))


def parse_statement(raw: bytes) -> DeviceStatement:
    """Return the statement in ``raw``, proven: its signer has signed it, and a new device that it holds its key.

    Raises:
        Refused: ``OVERSIZED``, ``MALFORMED``, or ``BAD_SIGNATURE``.
    """
    if len(raw) > MAX_STATEMENT_BYTES:
        raise Refused(Refusal.OVERSIZED, f"a statement of {len(raw)} bytes")
    reader = Reader(raw)
    version, number = reader.numbers(_KIND)
    if version != VERSION or number not in (Kind.ADD, Kind.REMOVE, Kind.RENEW):
        raise malformed("a statement of another form")
    kind, entity = Kind(number), checked_entity_id(reader.text(MAX_ENTITY_CHARS))
    signer, previous, subject = _KEYS.unpack(reader.take(_KEYS.size))
    name, seal_key, held, seen = "", b"", b"", NO_ID
    if kind is Kind.ADD:
        name, seal_key, held = reader.text(MAX_NAME_BYTES), reader.take(KEY_BYTES), reader.take(SIGNATURE_BYTES)
    elif kind is Kind.REMOVE:
        seen = reader.take(ID_BYTES)
    else:
        seal_key = reader.take(KEY_BYTES)
        if signer != subject:
            raise malformed("a device renews another's key")
    signature = reader.take(SIGNATURE_BYTES)
    reader.end()
    if kind is not Kind.REMOVE and not _can_seal_for(seal_key):
        raise malformed("a key for which nothing can be sealed")
    found = DeviceStatement(kind, entity, signer, previous, subject, name, seal_key, held, seen, signature)
    _SIGNED.check(signer, found.signed(), signature)
    if kind is Kind.ADD:
        _HELD.check(subject, with_length(entity.encode()) + seal_key, held)
    return found


def _can_seal_for(seal_key: bytes) -> bool:
    """Tell whether something can be sealed for a key; for a few of them libsodium refuses it."""
    try:
        SealedBox(PublicKey(seal_key)).encrypt(b"")
    except CryptoError:
        return False
    return True


def _signed(signer: SigningKey, bare: DeviceStatement) -> DeviceStatement:
    return replace(bare, signature=_SIGNED.sign(signer, bare.signed()))
