"""Which devices speak for an entity: a function of the set of their statements, whatever order these came in.

An entity begins with one device, whose key is that of its identity. Any device adds another, and removes any, itself
too.

Rules: removed is removed. A removal holds for good, whoever of the devices has written it and whatever the removed one
writes afterwards; it names how much of the removed one's chain counts, so nobody is added later under an old date. Who
was removed comes back under another key alone. At most ``MAX_DEVICES`` speak at a time.
Weak: two devices that remove each other without knowing are both out, and whoever finds a lost device can lock the
others out with it, though it reads nothing; the person then needs another entity, since whoever has the first device
might make another identity key as well. A device that forks its own chain is followed along the lower id.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from nacl.bindings import crypto_sign_ed25519_pk_to_curve25519
from nacl.exceptions import RuntimeError as NaclRuntimeError
from nacl.signing import VerifyKey

from sublet.protocol.ezagent.errors import malformed
from sublet.protocol.ezagent.ids import EntityId
from sublet.protocol.ezagent.sealing.device_statements import DeviceStatement, Kind
from sublet.protocol.ezagent.sealing.wire import NO_ID, DeviceId, device_id

MAX_DEVICES: Final = 16
"""Of one entity at a time."""
MAX_EVER: Final = 128
"""Devices that an entity has had; beyond that none is added."""
MAX_OF_DEVICE: Final = 256
"""Statements of one device that are followed."""

Rank = tuple[int, bytes]
"""How many devices stand between one and the first, and the id of what has added it."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device that speaks for an entity."""

    id: DeviceId
    name: str
    verify_key: bytes
    seal_key: bytes
    rank: Rank


@dataclass(frozen=True, slots=True)
class DeviceList:
    """The devices of an entity, in the order of their rank, and who was removed."""

    entity: EntityId
    devices: tuple[Device, ...]
    removed: frozenset[DeviceId] = frozenset()

    def verify_keys(self) -> tuple[VerifyKey, ...]:
        """Return every key that may sign for the entity."""
        return tuple(VerifyKey(device.verify_key) for device in self.devices)

    def find(self, device: DeviceId) -> Device | None:
        """Return a device that speaks for the entity, or None."""
        return next((one for one in self.devices if one.id == device), None)


def first_device(identity_key: bytes) -> Device:
    """Return the device that an entity begins with: its identity key, and the X25519 key that belongs to it.

    Raises:
        Refused: ``MALFORMED``: no X25519 key belongs to it.
    """
    try:
        seal_key: bytes = crypto_sign_ed25519_pk_to_curve25519(identity_key)
    except (NaclRuntimeError, ValueError, TypeError):
        raise malformed("an identity key for which nothing can be sealed") from None
    return Device(device_id(identity_key), "", identity_key, seal_key, (0, NO_ID))


def evaluate(entity: EntityId, identity_key: bytes, statements: Iterable[DeviceStatement]) -> DeviceList:
    """Return which devices speak for an entity.

    Args:
        entity: whose devices they are.
        identity_key: its raw public key, as its record tells it.
        statements: all that are known; those of other entities count for nothing.

    Raises:
        Refused: ``MALFORMED``: nothing can be sealed for the identity key.
    """
    known = {one.id: one for one in statements if one.entity == entity}
    first = first_device(identity_key)
    removals = _removals(first.id, known)
    devices = _walk(first, known, _after(known), removals)
    left = sorted((one for one in devices.values() if one.id not in removals), key=lambda one: one.rank)
    return DeviceList(entity, tuple(left), frozenset(removals))


def ever_keys(identity_key: bytes, statements: Iterable[DeviceStatement]) -> tuple[bytes, ...]:
    """Return the raw keys of all devices that an entity ever had, by whatever branch of a chain, its first one first.

    What these have signed counts in logs for good: who was removed is kept from saying more where it is heard, and
    what others had taken by then is not taken from those who come later.
    """
    first = device_id(identity_key)
    keys = {first: identity_key}
    adds = [one for one in statements if one.kind is Kind.ADD]
    for device in sorted(ever(first, adds) - {first}):
        keys[device] = next(one.subject_key for one in adds if one.subject == device)
    return tuple(keys.values())


def ever(first: DeviceId, statements: Iterable[DeviceStatement]) -> set[DeviceId]:
    """Return all devices that were ever added, by whatever branch of a chain, and the first one."""
    added: dict[DeviceId, list[DeviceId]] = {}
    for said in statements:
        if said.kind is Kind.ADD:
            added.setdefault(said.signer, []).append(said.subject)
    found, waiting = {first}, [first]
    while waiting:
        new = set(added.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found


def tip(device: DeviceId, statements: Iterable[DeviceStatement]) -> bytes:
    """Return the id of a device's last statement, as a removal and its own next statement name it."""
    known = {one.id: one for one in statements if one.signer == device}
    line = _line(device, known, _after(known), ())
    return line[-1].id if line else NO_ID


_Removals = dict[DeviceId, dict[bytes, bytes]]
"""Of each device the statements that remove it, each with the last of its own that counts."""
_After = Mapping[tuple[DeviceId, bytes], DeviceStatement]
"""The statement that follows another of the same device."""


def _removals(first: DeviceId, known: Mapping[bytes, DeviceStatement]) -> _Removals:
    """Return all removals by devices that were ever added, by whatever branch of a chain: a fork hides none."""
    devices = ever(first, known.values())
    removals: _Removals = {}
    for id, said in known.items():
        if said.kind is Kind.REMOVE and said.signer in devices:
            seen = said.previous if said.signer == said.subject else said.seen
            removals.setdefault(said.subject, {})[id] = seen
    return removals


def _after(known: Mapping[bytes, DeviceStatement]) -> _After:
    found: dict[tuple[DeviceId, bytes], DeviceStatement] = {}
    for id in sorted(known, reverse=True):
        found[known[id].signer, known[id].previous] = known[id]
    return found


def _line(
    device: DeviceId, known: Mapping[bytes, DeviceStatement], after: _After, removals: Iterable[bytes]
) -> list[DeviceStatement]:
    """Return the statements of a device that count: all, or what every removal of it has seen."""
    covered = [_back(device, seen, known) for seen in removals]
    if covered:
        alike = (same for same in zip(*covered, strict=False))
        return [same[0] for same in itertools.takewhile(lambda same: len({one.id for one in same}) == 1, alike)]
    line: list[DeviceStatement] = []
    last = NO_ID
    while len(line) < MAX_OF_DEVICE and (follows := after.get((device, last))) is not None:
        line.append(follows)
        last = follows.id
    return line


def _back(device: DeviceId, seen: bytes, known: Mapping[bytes, DeviceStatement]) -> list[DeviceStatement]:
    """Return a device's chain up to a statement; nothing where a part of it is not known."""
    line: list[DeviceStatement] = []
    while seen != NO_ID:
        found = known.get(seen)
        if found is None or found.signer != device or len(line) >= MAX_OF_DEVICE:
            return []
        line.append(found)
        seen = found.previous
    return line[::-1]


def _walk(
    first: Device, known: Mapping[bytes, DeviceStatement], after: _After, removals: _Removals
) -> dict[DeviceId, Device]:
    """Return all devices that were added, the highest rank first, whether they were removed since or not."""
    devices = {first.id: first}
    waiting = [(first.rank, first.id)]
    while waiting:
        rank, device = heapq.heappop(waiting)
        for said in _line(device, known, after, removals.get(device, {}).values()):
            if said.kind is Kind.RENEW:
                devices[device] = replace(devices[device], seal_key=said.seal_key)
            elif said.kind is Kind.ADD and said.subject not in devices and _has_room(devices, removals):
                of_new = rank[0] + 1, said.id
                devices[said.subject] = Device(said.subject, said.name, said.subject_key, said.seal_key, of_new)
                heapq.heappush(waiting, (of_new, said.subject))
    return devices


def _has_room(devices: Mapping[DeviceId, Device], removals: _Removals) -> bool:
    return len(devices) < MAX_EVER and sum(1 for one in devices if one not in removals) < MAX_DEVICES
