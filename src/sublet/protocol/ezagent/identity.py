"""Who stands behind an entity id without any relay: records that prove themselves (DESIGN 6.7).

The domain of an entity is the node id of the daemon key that vouches for it, so whoever holds a record can check it by
hashing one key; a relay only ever adds an alias.

A record carries what the entity's devices have said of each other. Each of these statements proves itself, so they are
not under the record's signature, and any device adds some; whoever has two records of one entity joins what both hold.
What is said by keys that no device of the entity has ever added is left out, or anybody could fill the record.
Weak: of more than ``MAX_STATEMENTS`` the identity key's own count first until its device is removed, then what was
known before, then removals: so who has heard of a removal keeps it, and others may differ while devices flood theirs.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sublet.protocol.bounded_json import parse_json
from sublet.protocol.canonical import JsonValue, canonical_json
from sublet.protocol.encoding import b64, unb64
from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.ids import EntityId, checked_entity_id, entity_domain
from sublet.protocol.ezagent.sealing.device_statements import (
    MAX_STATEMENT_BYTES,
    DeviceStatement,
    Kind,
    parse_statement,
)
from sublet.protocol.ezagent.sealing.devices import evaluate, ever, ever_keys
from sublet.protocol.ezagent.sealing.wire import device_id
from sublet.protocol.ids import node_id

MAX_RECORD_BYTES: Final = 32 << 10
MAX_STATEMENTS: Final = 24
"""Of an entity's devices about each other, in its record."""
MAX_DEVICES: Final = 16
PROVEN_KEPT: Final = 256
"""Records that were proven last: whoever asks sends theirs with each question, and what it says is the same."""
MAX_KEPT_BYTES: Final = 4 << 10
"""Of a record that is kept; a longer one is proven each time."""
KEY_BYTES: Final = 32
_RECORD_DOMAIN: Final = b"sublet/entity/1\n"
_STATEMENTS: Final = "statements"
_DEVICE_DOMAIN: Final = b"sublet/device/1\n"


class EntityKind(StrEnum):
    """What an entity is, so that a person, each agent and a daemon are told apart."""

    HUMAN = "human"
    AGENT = "agent"
    DAEMON = "daemon"


_KINDS: Final = {kind.value: kind for kind in EntityKind}


@dataclass(frozen=True, slots=True)
class Device:
    """A device whose key signs for an entity, itself signed by the entity's identity key."""

    name: str
    key: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class EntityRecord:
    """An entity's public key, vouched for by its domain. ``version`` grows with every change; the highest counts."""

    entity_id: EntityId
    kind: EntityKind
    key: bytes
    domain_key: bytes
    version: int
    devices: tuple[Device, ...]
    signature: bytes
    statements: tuple[DeviceStatement, ...] = ()

    @property
    def home(self) -> str:
        """Return the node id of the daemon that vouches for the entity, at which it is at home."""
        return node_id(self.domain_key)

    def verify_keys(self) -> tuple[VerifyKey, ...]:
        """Return every key that may sign for the entity now: those of its devices as far as this record tells them.

        What the identity key has signed of others goes with it, once the device that has it is removed.
        """
        older = tuple(VerifyKey(device.key) for device in self.devices)
        if not self.statements:
            return VerifyKey(self.key), *older
        try:
            found = evaluate(self.entity_id, self.key, self.statements)
        except Refused:  # nothing can be sealed for the identity key, so it has that alone
            return VerifyKey(self.key), *older
        return *found.verify_keys(), *(() if device_id(self.key) in found.removed else older)

    def log_keys(self) -> tuple[VerifyKey, ...]:
        """Return every key that counts for the entity in logs: of devices that were removed too."""
        ever = map(VerifyKey, ever_keys(self.key, self.statements))
        return *ever, *(VerifyKey(device.key) for device in self.devices)

    def encode(self) -> bytes:
        """Return the record as it travels."""
        told: JsonValue = [b64(one.encode()) for one in self.statements]
        more: dict[str, JsonValue] = {_STATEMENTS: told} if self.statements else {}
        return canonical_json({**_fields(self), **more, "signature": b64(self.signature)})

    def with_statements(self, more: Iterable[DeviceStatement]) -> EntityRecord:
        """Return the record with more statements of its entity's devices, in one order.

        Args:
            more: what others have said; where not all of it fits, what is in this record already goes before it.
        """
        known = {one.id: one for one in (*self.statements, *more) if one.entity == self.entity_id}
        devices = ever(device_id(self.key), known.values())
        known = {id: one for id, one in known.items() if one.signer in devices}
        order = {id: (one.signer_key != self.key, one.kind is not Kind.REMOVE, id) for id, one in known.items()}
        kept = list(known)
        if len(known) > MAX_STATEMENTS:
            here, trusts_first = {one.id for one in self.statements}, not self.has_lost_first()
            kept.sort(key=lambda id: (trusts_first and order[id][0], id not in here, order[id]))
        kept = sorted(kept[:MAX_STATEMENTS], key=order.__getitem__)
        return replace(self, statements=tuple(known[id] for id in kept))

    def has_lost_first(self) -> bool:
        """Tell whether the device that has the identity key was removed, so that nobody speaks by that key alone."""
        first = device_id(self.key)
        devices = ever(first, self.statements)
        return any(
            one.kind is Kind.REMOVE and one.subject == first and one.signer in devices for one in self.statements
        )


def make_record(
    local: str, kind: EntityKind, key: bytes, domain_key: SigningKey, version: int, devices: tuple[Device, ...] = ()
) -> EntityRecord:
    """Return a signed record.

    Args:
        local: local part of the entity's id.
        kind: what it is.
        key: the entity's raw public key.
        domain_key: the daemon's key, whose node id is the domain.
        version: higher than that of every record before.
        devices: at most ``MAX_DEVICES``.

    Raises:
        Refused: the local part makes no entity id.
    """
    public = bytes(domain_key.verify_key)
    entity = checked_entity_id(f"@{local}:{node_id(public)}")
    bare = EntityRecord(entity, kind, key, public, version, devices, b"")
    signature = domain_key.sign(_RECORD_DOMAIN + canonical_json(_fields(bare))).signature
    return EntityRecord(entity, kind, key, public, version, devices, signature)


def parse_record(raw: bytes) -> EntityRecord:
    """Return the record in ``raw``, proven: the domain's key has signed it, and the identity key each device.

    Raises:
        Refused: ``OVERSIZED``, ``MALFORMED``, or ``BAD_SIGNATURE``.
    """
    if len(raw) > MAX_RECORD_BYTES:
        raise Refused(Refusal.OVERSIZED, f"a record of {len(raw)} bytes")
    return _proven(raw) if len(raw) <= MAX_KEPT_BYTES else _parsed(raw)


@lru_cache(PROVEN_KEPT)
def _proven(raw: bytes) -> EntityRecord:
    """Return a record that proves itself, which was proven not long ago or is now."""
    return _parsed(raw)


def _parsed(raw: bytes) -> EntityRecord:
    try:
        body: JsonValue = parse_json(raw)
    except (ValueError, RecursionError):
        raise malformed("a record is no JSON") from None
    if not isinstance(body, dict):
        raise malformed("a record is no object")
    devices = body.get("devices")
    version = body.get("version")
    kind = body.get("kind")
    if (
        not isinstance(devices, list)
        or len(devices) > MAX_DEVICES
        or not isinstance(version, int)
        or isinstance(version, bool)
        or not 0 <= version < 2**53
        or not isinstance(kind, str)
        or kind not in _KINDS
    ):
        raise malformed("a record has another shape")
    record = EntityRecord(
        checked_entity_id(_text(body, "entity_id")),
        _KINDS[kind],
        _bytes(body, "key", KEY_BYTES),
        _bytes(body, "domain_key", KEY_BYTES),
        version,
        tuple(_device(item) for item in devices),
        _bytes(body, "signature", 64),
    )
    _prove(record)
    return record.with_statements(_said(body, record.entity_id))


def _said(body: dict[str, JsonValue], entity: EntityId) -> list[DeviceStatement]:
    told = body.get(_STATEMENTS, [])
    if not isinstance(told, list) or len(told) > MAX_STATEMENTS:
        raise malformed("a record with statements of another shape")
    found: list[DeviceStatement] = []
    for text in told:
        if not isinstance(text, str) or len(text) > 2 * MAX_STATEMENT_BYTES:
            raise malformed("a record with statements of another shape")
        try:
            found.append(parse_statement(base64.b64decode(text, validate=True)))
        except (binascii.Error, ValueError):
            raise malformed("a record with statements of another shape") from None
        if found[-1].entity != entity:
            raise malformed("a record with statements of another entity's devices")
    return found


def _prove(record: EntityRecord) -> None:
    if record.home != entity_domain(record.entity_id):
        raise Refused(Refusal.BAD_SIGNATURE, "the key that vouches for a record is not that of its domain")
    try:
        VerifyKey(record.domain_key).verify(_RECORD_DOMAIN + canonical_json(_fields(record)), record.signature)
        identity = VerifyKey(record.key)
        for device in record.devices:
            identity.verify(device_bytes(record.entity_id, device.name, device.key), device.signature)
    except (BadSignatureError, ValueError):
        raise Refused(Refusal.BAD_SIGNATURE, "a record, or a device in it, is not signed") from None


def _fields(record: EntityRecord) -> dict[str, JsonValue]:
    return {
        "entity_id": record.entity_id,
        "kind": str(record.kind),
        "key": b64(record.key),
        "domain_key": b64(record.domain_key),
        "version": record.version,
        "devices": [
            {"name": device.name, "key": b64(device.key), "signature": b64(device.signature)}
            for device in record.devices
        ],
    }


def device_bytes(entity: EntityId, name: str, key: bytes) -> bytes:
    """Return what the identity key of an entity signs for a device's key."""
    return _DEVICE_DOMAIN + canonical_json({"entity_id": entity, "name": name, "key": b64(key)})


def _device(value: JsonValue) -> Device:
    if not isinstance(value, dict):
        raise malformed("a device is no object")
    return Device(_text(value, "name"), _bytes(value, "key", KEY_BYTES), _bytes(value, "signature", 64))


def _text(body: dict[str, JsonValue], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or len(value) > 512 or not value.isprintable():
        raise malformed(f"a record without {name}")
    return value


def _bytes(body: dict[str, JsonValue], name: str, size: int) -> bytes:
    raw = unb64(_text(body, name), size)
    if raw is None:
        raise malformed(f"a record without {name}")
    return raw
