"""What a relay is told of a room, so that it forwards to its members alone: their daemons, and who may write.

It has no names, roles or other config (DESIGN 6.10). The first statement of a room is signed by the daemon of whoever
opened it, to whom the room's id is bound; each later one by a daemon that the one before has named, under a higher
version. Whoever knows the members of a room, sealed or not, makes one from a ``RoomHomes``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sublet.protocol import ids
from sublet.protocol.canonical import JsonValue, canonical_json
from sublet.protocol.encoding import b64
from sublet.protocol.ezagent.ids import (
    ROOM_SALT_BYTES,
    RoomId,
    created_ms,
    entity_domain,
    is_entity_id,
    is_room_id,
    room_id,
)
from sublet.protocol.patterns import Pattern
from sublet.protocol.relay.errors import RelayCode, RelayRefusal, invalid
from sublet.protocol.relay.fields import bytes_of, number_of, parse_object, text_of, texts_of
from sublet.protocol.relay.requests import KEY_BYTES, SIGNATURE_BYTES

MAX_HOMES: Final = 1_024
"""Daemons of one room."""
MAX_MANAGERS: Final = 16
MAX_STATEMENT_BYTES: Final = 96 << 10
_DOMAIN: Final = b"sublet/relay-room/1\n"
_NODE = Pattern(r"node-[a-z2-7]{16}\Z")
_FIELDS: Final = frozenset(
    {"relay", "room_id", "creator", "salt", "version", "homes", "readers", "managers", "signer", "signature"}
)


@dataclass(frozen=True, slots=True)
class RoomHomes:
    """Who is in a room, as a relay needs to know it.

    Args:
        creator: the entity that opened it.
        salt: from which its id was made, as its config tells.
        writers: node ids of daemons with a member that may write.
        readers: node ids of those whose members only read.
        managers: node ids of those that may state who is in it from now on.
    """

    creator: str
    salt: bytes
    writers: frozenset[str]
    readers: frozenset[str]
    managers: frozenset[str]


@dataclass(frozen=True, slots=True)
class RoomStatement:
    """A statement of a room for one relay.

    Args:
        relay: the relay's domain.
        room: its id.
        homes: who is in it.
        version: higher than that of the statement before.
        signer: raw public key of the daemon that states it.
        signature: of that key.
    """

    relay: str
    room: RoomId
    homes: RoomHomes
    version: int
    signer: bytes
    signature: bytes = b""

    @property
    def members(self) -> frozenset[str]:
        """Node ids of all daemons of the room."""
        return self.homes.writers | self.homes.readers

    def fields(self) -> dict[str, JsonValue]:
        """Return what is signed."""
        return {
            "relay": self.relay,
            "room_id": self.room,
            "creator": self.homes.creator,
            "salt": b64(self.homes.salt),
            "version": self.version,
            "homes": _sorted(self.homes.writers),
            "readers": _sorted(self.homes.readers),
            "managers": _sorted(self.homes.managers),
            "signer": b64(self.signer),
        }

    def encode(self) -> bytes:
        """Return it as it travels."""
        return canonical_json({**self.fields(), "signature": b64(self.signature)})


def make_statement(relay: str, room: RoomId, homes: RoomHomes, version: int, key: SigningKey) -> RoomStatement:
    """Return a statement that is signed by a daemon's key."""
    bare = RoomStatement(relay, room, homes, version, bytes(key.verify_key))
    signature = key.sign(_DOMAIN + canonical_json(bare.fields())).signature
    return RoomStatement(relay, room, homes, version, bare.signer, signature)


def parse_statement(raw: bytes, relay: str) -> RoomStatement:
    """Return a statement that is signed by its signer, for this relay, whose room was opened by its creator.

    Whether the signer may state it is for ``may_follow``.

    Raises:
        RelayRefusal: ``VALIDATION_ERROR``, ``INVALID_SIGNATURE`` or ``DOMAIN_MISMATCH``.
    """
    body = parse_object(raw, MAX_STATEMENT_BYTES, _FIELDS)
    room, creator, salt = text_of(body, "room_id"), text_of(body, "creator"), bytes_of(body, "salt", ROOM_SALT_BYTES)
    if not is_room_id(room) or not is_entity_id(creator) or room_id(creator, created_ms(room), salt) != room:
        raise invalid("it is no room that its creator has opened")
    is_node = _NODE.match
    homes = RoomHomes(
        creator,
        salt,
        frozenset(texts_of(body, "homes", is_node, MAX_HOMES)),
        frozenset(texts_of(body, "readers", is_node, MAX_HOMES)),
        frozenset(texts_of(body, "managers", is_node, MAX_MANAGERS)),
    )
    statement = RoomStatement(
        text_of(body, "relay"),
        room,
        homes,
        number_of(body, "version"),
        bytes_of(body, "signer", KEY_BYTES),
        bytes_of(body, "signature", SIGNATURE_BYTES),
    )
    if statement.relay != relay:
        raise RelayRefusal(RelayCode.DOMAIN_MISMATCH, f"it is meant for another relay than {relay}")
    if statement.fields() | {"signature": body["signature"]} != body:
        raise invalid("its lists are not in order")
    try:
        VerifyKey(statement.signer).verify(_DOMAIN + canonical_json(statement.fields()), statement.signature)
    except (BadSignatureError, ValueError):
        raise RelayRefusal(RelayCode.INVALID_SIGNATURE, "the statement is not signed by its signer") from None
    return statement


def check_follows(statement: RoomStatement, before: RoomStatement | None) -> None:
    """Do nothing where a statement may take the place of the one before, or be the first of its room.

    Raises:
        RelayRefusal: ``PERMISSION_DENIED`` for a signer that may not state it, ``CONFLICT`` for an old version.
    """
    signer = ids.node_id(statement.signer)
    may = {entity_domain(statement.homes.creator)} if before is None else before.homes.managers
    if signer not in may:
        raise RelayRefusal(RelayCode.PERMISSION_DENIED, "this daemon may not state who is in the room")
    if before is not None and statement.version <= before.version:
        raise RelayRefusal(RelayCode.CONFLICT, f"version {before.version} is known already")


def _sorted(names: Collection[str]) -> list[JsonValue]:
    return [*sorted(names)]
