"""Probes of sealed rooms: what statements about keys and devices cost, and what waits until it can be sealed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from attacks.probe import CostProbe, KeptProbe, Probe
from sublet.protocol.ezagent.sealing import device_statements
from sublet.protocol.ezagent.sealing.core import step
from sublet.protocol.ezagent.sealing.device_statements import DeviceStatement
from sublet.protocol.ezagent.sealing.devices import evaluate
from sublet.protocol.ezagent.sealing.events import RosterChanged, StatementsCame
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
    CostProbe(
        name="sealing: devices that add and remove each other in a row",
        covers=[
            "protocol.ezagent.sealing.devices:_back",
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
            "protocol.ezagent.sealing.state:Epoch.__post_init__",
        ],
        make=_epochs,
        run=_take,
    ),
    KeptProbe(
        name="sealing: messages that wait for a key",
        covers=[
            "messaging.sealing.carrying:Carrying.__init__",
            "messaging.sealing.carrying:Carrying._wait",
            "messaging.sealing.carrying:Carrying.sealed",
        ],
        attack=_waiting,
    ),
)
