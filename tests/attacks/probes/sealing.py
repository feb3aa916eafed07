"""Probes of sealed rooms: what statements about keys and devices cost, and what waits until it can be sealed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from attacks.kit.as_probe import throwing
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe
from daemon.rooms import test_own_device
from sublet.protocol.ezagent.sealing import device_statements, shares
from sublet.protocol.ezagent.sealing.core import step
from sublet.protocol.ezagent.sealing.device_statements import DeviceStatement
from sublet.protocol.ezagent.sealing.devices import evaluate
from sublet.protocol.ezagent.sealing.events import RosterChanged, StatementsCame, TimePassed
from sublet.protocol.ezagent.sealing.state import Member, OwnDevice, RoomKeys
from sublet.protocol.ezagent.sealing.statements import EpochName, KeyStatement, Kind, commit, make_statement
from sublet.protocol.ezagent.sealing.wire import NO_ID, device_id
from support.rooms import peers, shared_room

ROOM, ENTITY = "01957a3b-0000-7000-8000-000000000005", "@alice:a.example"
BYTES_OF_STATEMENT = 300
SEAL_KEY = PrivateKey(b"\1" * 32)


def _key(number: int) -> SigningKey:
    return SigningKey(number.to_bytes(4, "big") * 8)


def _devices(size: int) -> list[DeviceStatement]:
    """Return a chain of devices, each added and then removed by the one before."""
    made: list[DeviceStatement] = []
    seal_key = bytes(SEAL_KEY.public_key)
    for number in range(max(size // BYTES_OF_STATEMENT // 2, 1)):
        one, other = _key(number), _key(number + 1)
        public = bytes(other.verify_key)
        held = device_statements.prove_held(other, ENTITY, seal_key)
        made.append(device_statements.add(one, ENTITY, NO_ID, public, "", seal_key, held))
        made.append(device_statements.remove(one, ENTITY, made[-1].id, public, NO_ID))
    return made


def _evaluate(statements: list[DeviceStatement]) -> None:
    evaluate(ENTITY, bytes(_key(0).verify_key), statements)


def _epochs(size: int) -> list[KeyStatement]:
    """Return epochs that go on from each other, the last of which strangers hand on to each other in a row."""
    signer, made = _key(0), list[KeyStatement]()
    boxes = {device_id(bytes(signer.verify_key)): bytes(SEAL_KEY.public_key)}
    before = NO_ID
    for number in range(1, max(size // BYTES_OF_STATEMENT // 2, 1) + 1):
        key = number.to_bytes(4, "big") * 8
        name = EpochName(ROOM, number, before, device_id(bytes(signer.verify_key)), commit(key))
        made.append(make_statement(Kind.OPENED, name, signer, key, boxes))
        before = name.id
    for number in range(len(made)):
        to = {device_id(bytes(_key(number + 1).verify_key)): bytes(SEAL_KEY.public_key)}
        made.append(make_statement(Kind.HANDED, name, _key(number), key, to))
    return made


def _take(statements: list[KeyStatement]) -> None:
    own = OwnDevice(_key(0), (SEAL_KEY,))
    roster = {own.id: Member(ENTITY, bytes(SEAL_KEY.public_key))}
    state, _ = step(RoomKeys(ROOM, own), RosterChanged(roster), 0)
    step(state, StatementsCame(tuple(statements)), 0)


def _made_up(size: int) -> list[KeyStatement]:
    """Return that one member lacks the keys of epochs that it makes up."""
    made: list[KeyStatement] = []
    for number in range(2, max(size // BYTES_OF_STATEMENT, 1) + 2):
        name = EpochName(ROOM, number, b"\1" * 16, b"\2" * 16, commit(number.to_bytes(4, "big") * 8))
        made.append(make_statement(Kind.WANTED, name, _key(1)))
    return made


def _removals(size: int) -> list[KeyStatement]:
    """Return epochs in a row, each of which tells of other removals that nobody knows, and forgets those before."""
    signer, made = _key(0), list[KeyStatement]()
    boxes = {device_id(bytes(signer.verify_key)): bytes(SEAL_KEY.public_key)}
    before, told = NO_ID, frozenset[bytes]()
    for number in range(1, max(size // BYTES_OF_STATEMENT // 2, 1) + 1):
        key = number.to_bytes(4, "big") * 8
        name = EpochName(ROOM, number, before, device_id(bytes(signer.verify_key)), commit(key))
        learned = frozenset(bytes([one]) * 12 + number.to_bytes(4, "big") for one in range(16))
        made.append(make_statement(Kind.OPENED, name, signer, key, boxes, learned, told if number % 2 else frozenset()))
        before, told = name.id, learned
    return made


def _take_and_hand(statements: list[KeyStatement]) -> None:
    own = OwnDevice(_key(0), (SEAL_KEY,))
    member = Member(ENTITY, bytes(SEAL_KEY.public_key))
    state, _ = step(RoomKeys(ROOM, own), RosterChanged({own.id: member}), 0)
    state, _ = step(state, StatementsCame(tuple(statements)), 0)
    other = device_id(bytes(_key(1).verify_key))
    state, _ = step(state, RosterChanged({own.id: member, other: member}), 0)
    step(state, TimePassed(bytes(32)), 60_000)


def _fill(statements: list[KeyStatement]) -> None:
    """Take statements of which most do not fit any more."""
    with patch.multiple(shares, MAX_SHARE=400, MAX_SHARES=800):
        _take(statements)


@contextmanager
def _waiting() -> Iterator[object]:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    alice.do("room.update_config", room_id=room, changes={"encryption": "members"})
    for number in range(400):  # nobody begins an epoch, so all of it waits
        alice.do("message.send", room_id=room, body=f"{number} " + "x" * 20_000)
        assert alice.engine.carrying.sealed(alice.engine.outbox.take()) == []
    try:
        yield alice.engine.carrying
    finally:
        alice.engine.seals.turn()
        alice.engine.commit()
        alice.engine.carrying.sealed(alice.engine.outbox.take())
        alice.store.close()
        bob.store.close()


PROBES: Sequence[Probe] = (
    FailureProbe(
        name="sealing: a device that nobody tells whether it was added",
        covers=["daemon.rooms.own_device:OwnDevice.run"],
        throw=throwing(test_own_device.test_a_device_is_one_once_it_was_added_and_until_it_is_removed),
    ),
    CostProbe(
        name="sealing: devices that add and remove each other in a row",
        covers=[
            "protocol.ezagent.sealing.devices:_back",
            "protocol.ezagent.sealing.devices:ever",
            "protocol.ezagent.sealing.devices:_line",
            "protocol.ezagent.sealing.devices:_removals",
            "protocol.ezagent.sealing.devices:_walk",
        ],
        make=_devices,
        run=_evaluate,
    ),
    CostProbe(
        name="sealing: epochs in a row, and a key that strangers hand on",
        covers=[
            "protocol.ezagent.sealing.choosing:told_of",
            "protocol.ezagent.sealing.state:_known_by",
        ],
        make=_epochs,
        run=_take,
    ),
    CostProbe(
        name="sealing: epochs that a member makes up and says that it lacks",
        covers=["protocol.ezagent.sealing.shares:with_said"],
        make=_made_up,
        run=_take,
    ),
    CostProbe(
        name="sealing: epochs that a member makes up, beyond its share",
        covers=["protocol.ezagent.sealing.shares:_cut", "protocol.ezagent.sealing.shares:_fair"],
        make=_made_up,
        run=_fill,
    ),
    CostProbe(
        name="sealing: epochs in a row that tell of removals nobody knows",
        covers=["protocol.ezagent.sealing.choosing:handable"],
        make=_removals,
        run=_take_and_hand,
    ),
    KeptProbe(
        name="sealing: messages that wait for a key",
        covers=[
            "messaging.sealing.carrying:Carrying.__init__",
            "messaging.sealing.carrying:Carrying.sealed",
            "messaging.sealing.waiting:Waiting.__init__",
            "messaging.sealing.waiting:Waiting.put",
            "messaging.sealing.waiting:Waiting.take",
        ],
        attack=_waiting,
    ),
)
