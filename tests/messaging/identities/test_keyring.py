"""Whose key counts for an entity, whatever strangers and devices that were removed bring, and in whatever order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from nacl.signing import SigningKey

from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.identities.keyring import Keyring
from sublet.protocol.ezagent.identity import (
    MAX_STATEMENTS,
    Device,
    EntityKind,
    EntityRecord,
    device_bytes,
    make_record,
)
from sublet.protocol.ezagent.sealing.device_statements import DeviceStatement, add, prove_held, remove, renew
from sublet.protocol.ezagent.sealing.wire import NO_ID
from support.rooms import daemon_key, local_entity

ALICE = local_entity("alice", 1)
ENTITY = ALICE.record.entity_id
PHONE, LAPTOP, OTHER = (SigningKey(bytes([seed]) * 32) for seed in (1, 2, 3))


def public(key: SigningKey) -> bytes:
    return bytes(key.verify_key)


def added(device: SigningKey, name: str, previous: bytes = NO_ID) -> DeviceStatement:
    seal_key = bytes(device.verify_key.to_curve25519_public_key())
    held = prove_held(device, ENTITY, seal_key)
    return add(ALICE.key, ENTITY, previous, public(device), name, seal_key, held)


WITH_PHONE = added(PHONE, "phone")
WITH_BOTH = (WITH_PHONE, added(LAPTOP, "laptop", WITH_PHONE.id))
NO_LAPTOP = remove(PHONE, ENTITY, NO_ID, public(LAPTOP), NO_ID)
NO_FIRST = remove(PHONE, ENTITY, NO_ID, public(ALICE.key), WITH_BOTH[-1].id)


def keyring_of(*records: EntityRecord) -> Keyring:
    made = Keyring(SqliteStore(None), [])
    for record in records:
        made.learn(record.encode())
    return made


def with_all(statements: Iterable[DeviceStatement]) -> EntityRecord:
    """Return a record as somebody writes it who keeps to no rule."""
    return replace(ALICE.record, statements=tuple(statements))


def speaking(keyring: Keyring) -> set[bytes]:
    found = keyring.devices(ENTITY)
    assert found is not None
    keys = {bytes(key) for key in keyring.speaking(ENTITY) or ()}
    assert {one.verify_key for one in found.devices} == keys
    return keys


def removals_by_strangers() -> list[DeviceStatement]:
    """Return as many as a record holds, all of which would stand before the removal of the laptop."""
    keys = (SigningKey(number.to_bytes(32, "big")) for number in itertools.count(1_000))
    said = (remove(key, ENTITY, NO_ID, public(OTHER), NO_ID) for key in keys)
    return list(itertools.islice((one for one in said if one.id < NO_LAPTOP.id), MAX_STATEMENTS))


def flood_of_first() -> list[DeviceStatement]:
    """Return as many statements of the first device as a record holds."""
    said: list[DeviceStatement] = []
    while len(said) < MAX_STATEMENTS:
        last = said[-1].id if said else WITH_BOTH[-1].id
        said.append(renew(ALICE.key, ENTITY, last, bytes(OTHER.verify_key.to_curve25519_public_key())))
    return said


def test_what_strangers_say_of_an_entitys_devices_brings_none_back() -> None:
    keyring = keyring_of(with_all((*WITH_BOTH, NO_LAPTOP)))
    assert speaking(keyring) == {public(ALICE.key), public(PHONE)}
    assert keyring.learn(with_all(removals_by_strangers()).encode()) is None
    assert speaking(keyring) == {public(ALICE.key), public(PHONE)}
    late = keyring_of(with_all(removals_by_strangers()), with_all((*WITH_BOTH, NO_LAPTOP)))
    assert speaking(late) == {public(ALICE.key), public(PHONE)}


def test_a_first_device_that_was_removed_floods_its_statements_in_vain() -> None:
    keyring = keyring_of(with_all((*WITH_BOTH, NO_FIRST)), with_all(flood_of_first()))
    assert speaking(keyring) == {public(PHONE), public(LAPTOP)}
    record = keyring.record(ENTITY)
    assert record is not None
    assert len(record.statements) == MAX_STATEMENTS
    assert speaking(keyring_of(record)) == {public(PHONE), public(LAPTOP)}, "after a start too"


def test_who_is_known_from_now_on_with_several_devices_is_heard_at_all_of_them() -> None:
    keyring = keyring_of()
    before, homes = keyring.moves, keyring.homes(ENTITY)
    keyring.learn(with_all(WITH_BOTH).encode())
    assert homes < keyring.homes(ENTITY)
    assert keyring.moves != before, "or what was worked out of who hears a room would stay"


def _newer(key: SigningKey, devices: Sequence[Device] = ()) -> EntityRecord:
    return make_record("alice", EntityKind.AGENT, public(key), daemon_key("alice"), 2, tuple(devices))


SIGNED = ALICE.key.sign(device_bytes(ENTITY, "other", public(OTHER))).signature
NEWER = (_newer(OTHER), _newer(ALICE.key, [Device("other", public(OTHER), SIGNED)]))


@pytest.mark.parametrize("newer", NEWER, ids=("another key", "another device"))
@pytest.mark.parametrize("is_first", [False, True])
def test_a_first_device_that_was_removed_makes_no_newer_record(newer: EntityRecord, is_first: bool) -> None:
    removed = with_all((*WITH_BOTH, NO_FIRST))
    keyring = keyring_of(newer, removed) if is_first else keyring_of(removed, newer)
    assert speaking(keyring) == {public(PHONE), public(LAPTOP)}


def test_before_that_it_makes_newer_records() -> None:
    keyring = keyring_of(with_all(WITH_BOTH), NEWER[1])
    record = keyring.record(ENTITY)
    assert record is not None
    assert record.version == NEWER[1].version
    assert public(OTHER) in {bytes(key) for key in keyring.speaking(ENTITY) or ()}
