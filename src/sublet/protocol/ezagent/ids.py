"""Ids of entities, rooms, refs and contents, and the only shapes they may have (ezagent 1.4, 4.2, 4.3)."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final, TypeAlias

from sublet.protocol.ezagent.errors import malformed
from sublet.protocol.patterns import Pattern

EntityId: TypeAlias = str
RoomId: TypeAlias = str
RefId: TypeAlias = str
ContentId: TypeAlias = str

SYSTEM_ENTITY: Final = "@system:local"
"""The engine's own hooks; it can't be registered, signed for, or accepted from the wire (DESIGN 6.7)."""

MAX_ENTITY_CHARS: Final = 1 + 64 + 1 + 253
_ROOM_CHARS: Final = 36
_IDS_KEPT: Final = 2_048
"""Ids of which it is remembered whether they are any: each message names a few, again and again."""
_ENTITY = Pattern(r"@[a-z0-9._-]{1,64}:[a-z0-9.-]{1,253}\Z")
_ROOM = Pattern(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_UUID = Pattern(r"uuid:[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")

ROOM_SALT_BYTES: Final = 16
CLIENT_NONCE_BITS: Final = 16
"""Of the 53 bits of a Yjs client id; the rest is a hash of its entity."""
_CLIENT_HASH_BITS: Final = 53 - CLIENT_NONCE_BITS
_ROOM_DOMAIN: Final = b"sublet/room/1\n"
_REF_DOMAIN: Final = b"sublet/ref-id/1\n"
_CLIENT_DOMAIN: Final = b"sublet/client/1\n"
_CONTENT_DOMAIN: Final = b"sublet/content/1\n"
_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_HEX: Final = "0123456789abcdef"
_CROCKFORD_PAIRS: Final = [high + low for high in _CROCKFORD for low in _CROCKFORD]
_TO_BASE_32: Final = str.maketrans(_CROCKFORD, "0123456789abcdefghijklmnopqrstuv")
_TIME_BITS: Final = 48


def is_entity_id(text: str) -> bool:
    """Tell whether ``text`` is an entity id: ``@`` local part ``:`` domain, in lower case."""
    return len(text) <= MAX_ENTITY_CHARS and _is_entity(text)


@lru_cache(maxsize=_IDS_KEPT)
def _is_entity(text: str) -> bool:
    return _ENTITY.match(text) is not None


def checked_entity_id(text: str) -> EntityId:
    """Return ``text`` if it is an entity id that may sign.

    Raises:
        Refused: it is none, or it is the engine's own ``@system:local``.
    """
    if not is_entity_id(text) or text == SYSTEM_ENTITY:
        raise malformed("not the id of an entity")
    return text


def entity_domain(entity: EntityId) -> str:
    """Return the domain of an entity id: the namespace that vouches for its key."""
    return entity.partition(":")[2]


def is_room_id(text: str) -> bool:
    """Tell whether ``text`` is a room id: a UUID of version 7 in lower case."""
    return len(text) == _ROOM_CHARS and _is_room(text)


@lru_cache(maxsize=_IDS_KEPT)
def _is_room(text: str) -> bool:
    return _ROOM.match(text) is not None


def room_id(creator: EntityId, created_ms: int, salt: bytes) -> RoomId:
    """Return the id of the room that ``creator`` opens.

    The random bits of the UUID are a hash of the creator, the time and a salt, all of which the room's config tells:
    so nobody can pass off a config of their own as that of a room that somebody else has opened.

    Args:
        creator: entity that opens the room.
        created_ms: Unix time in milliseconds, of 48 bits.
        salt: ``ROOM_SALT_BYTES`` random bytes.

    Raises:
        ValueError: a time or a salt of another size.
    """
    if len(salt) != ROOM_SALT_BYTES:
        raise ValueError("a salt of another size")
    time = created_ms.to_bytes(_TIME_BITS // 8, "big") if 0 <= created_ms < 1 << _TIME_BITS else None
    if time is None:
        raise ValueError("a time beyond 48 bits")
    raw = bytearray(time + hashlib.sha256(_ROOM_DOMAIN + time + salt + creator.encode()).digest()[:10])
    raw[6] = 0x70 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def created_ms(room: RoomId) -> int:
    """Return when a room was opened by its id, Unix milliseconds."""
    return int(room.replace("-", "")[: _TIME_BITS // 4], 16)


def is_ref_id(text: str) -> bool:
    """Tell whether ``text`` is a ref id: a ULID, with or without the prefix ``ulid:``."""
    plain = text[5:] if len(text) == 31 and text.startswith("ulid:") else text
    return len(plain) == 26 and plain[0] < "8" and not plain.strip(_CROCKFORD)  # an eighth of what a pattern takes


def ref_id(at_ms: int, random: bytes) -> RefId:
    """Return a ULID of a time (Unix milliseconds, 48 bits) and 10 random bytes.

    Raises:
        ValueError: a time beyond 48 bits, or another number of bytes.
    """
    if len(random) != 10 or not 0 <= at_ms < 1 << _TIME_BITS:
        raise ValueError("a ULID is 48 bits of time and 80 random ones")
    number = at_ms << 80 | int.from_bytes(random, "big")
    return "".join([_CROCKFORD_PAIRS[number >> shift & 1023] for shift in range(120, -1, -10)])


def own_ref_id(at_ms: int, room: RoomId, author: EntityId, number: int) -> RefId:
    """Return the id of a ref, which commits to its room and its author, so that nobody writes under another's id.

    Args:
        at_ms: Unix time in milliseconds, of 48 bits.
        room: the room that the ref is in.
        author: entity that writes it.
        number: tells apart what one author writes in one millisecond; its low 16 bits count.

    Raises:
        ValueError: a time beyond 48 bits.
    """
    low = number & 0xFFFF
    return ref_id(at_ms, _ref_binding(at_ms, room, author, low) + low.to_bytes(2, "big"))


def is_own_ref_id(text: RefId, room: RoomId, author: EntityId) -> bool:
    """Tell whether a ref id is one that only ``author`` may use, in ``room``."""
    value = int(text[-26:].translate(_TO_BASE_32), 32)
    at_ms, random = value >> 80, (value & (1 << 80) - 1).to_bytes(10, "big")
    return random[:8] == _ref_binding(at_ms, room, author, int.from_bytes(random[8:], "big"))


def ref_ms(text: RefId) -> int:
    """Return when a ref was written by its id, Unix milliseconds: as its author's clock had it."""
    return int(text[-26:].translate(_TO_BASE_32), 32) >> 80


def client_id(entity: EntityId, nonce: int) -> int:
    """Return a Yjs client id that commits to its entity, so that nobody takes another's by writing with it first.

    Args:
        entity: who writes with it.
        nonce: another one in every process; its low ``CLIENT_NONCE_BITS`` bits count.
    """
    low = nonce & (1 << CLIENT_NONCE_BITS) - 1
    digest = hashlib.sha256(_CLIENT_DOMAIN + low.to_bytes(4, "big") + entity.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 64 - _CLIENT_HASH_BITS << CLIENT_NONCE_BITS | low


def is_client_of(client: int, entity: EntityId) -> bool:
    """Tell whether a Yjs client id is one that only ``entity`` may write with."""
    return client_id(entity, client) == client


def _ref_binding(at_ms: int, room: RoomId, author: EntityId, number: int) -> bytes:
    named = f"{at_ms} {number} {room} {author}".encode()
    return hashlib.sha256(_REF_DOMAIN + named).digest()[:8]


def own_content_id(at_ms: int, room: RoomId, author: EntityId, number: int) -> ContentId:
    """Return the id of content that changes; it commits to its room and its author, as the id of a ref does.

    Args:
        at_ms: Unix time in milliseconds, of 48 bits.
        room: the room that the content is in.
        author: entity that writes it.
        number: tells apart what one author makes in one millisecond; its low 12 bits count.

    Raises:
        ValueError: a time beyond 48 bits.
    """
    if not 0 <= at_ms < 1 << _TIME_BITS:
        raise ValueError("a time beyond 48 bits")
    low = number & 0xFFF
    named = f"{at_ms} {low} {room} {author}".encode()
    bound = int.from_bytes(hashlib.sha256(_CONTENT_DOMAIN + named).digest()[:8], "big") >> 2
    text = f"{at_ms << 80 | 0x7 << 76 | low << 64 | 0b10 << 62 | bound:032x}"
    return f"uuid:{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_own_content_id(text: ContentId, room: RoomId, author: EntityId) -> bool:
    """Tell whether the id of content that changes is one that only ``author`` may use, in ``room``."""
    if _UUID.match(text) is None:
        return False
    value = int(text.removeprefix("uuid:").replace("-", ""), 16)
    return own_content_id(value >> 80, room, author, value >> 64) == text


def is_content_id(text: str) -> bool:
    """Tell whether ``text`` is a content id: ``sha256:`` and 64 hex digits, or ``uuid:`` and a UUID of version 7."""
    return is_content_hash(text) or _UUID.match(text) is not None


def is_content_hash(text: str) -> bool:
    """Tell whether ``text`` is the id of immutable content."""
    return len(text) == 71 and text.startswith("sha256:") and not text[7:].strip(_HEX)
