"""What a device knows of a room's keys: who is to have them, which epochs there are, and the keys that it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.sealing.shares import Rank, Said, Shares
from sublet.protocol.ezagent.sealing.statements import EpochName, Kind
from sublet.protocol.ezagent.sealing.wire import DeviceId, device_id


class Phase(StrEnum):
    """How it stands with writing to the room."""

    OUTSIDE = "outside"
    """Our device is none of a member."""
    DUE = "due"
    """Every epoch is known to somebody who may not read, or to nobody yet: another one has to begin."""
    LACKING = "lacking"
    """There is an epoch to write under, and its key is not here."""
    READY = "ready"


class History(StrEnum):
    """What a new member is given to read of the time before."""

    SHARED = "shared"
    """The keys of all epochs."""
    SINCE_JOINED = "since_joined"
    """Nothing: a new epoch begins with each new member."""


@dataclass(frozen=True, slots=True)
class Member:
    """A device that may read: whose it is, and the raw X25519 key that rooms' keys are sealed for."""

    entity: EntityId
    seal_key: bytes


@dataclass(frozen=True, slots=True)
class OwnDevice:
    """Our own device: the key that it signs with, and those that open what is sealed for it, the newest first."""

    signing: SigningKey
    seal_keys: tuple[PrivateKey, ...]
    id: DeviceId = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", device_id(bytes(self.signing.verify_key)))


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch, as far as the statements tell that count; made of them by ``epoch_of``.

    Args:
        name: which one.
        said: what counts, by its rank.
        is_opened: whether its opener has said that it begins.
        boxes: devices for which its opener has sealed the key.
        handed: who has handed it to whom later; a device that hands it to itself has it.
        wanted_by: devices that have said that they lack it.
        learned: removals that its opener knew, and that of the epoch before did not.
        unknown: removals that the opener of the epoch before knew, and its own did not.
        known_by: devices that hold its key, or may: its opener, and whom it was handed to by one that does. Whoever
            can't have the key hands it to nobody, so what a stranger says of it changes nothing.
    """

    name: EpochName
    said: Mapping[Rank, Said]
    is_opened: bool
    boxes: frozenset[DeviceId]
    handed: frozenset[tuple[DeviceId, DeviceId]]
    wanted_by: frozenset[DeviceId]
    learned: frozenset[bytes]
    unknown: frozenset[bytes]
    known_by: frozenset[DeviceId]


def epoch_of(said: Mapping[Rank, Said]) -> Epoch:
    """Return an epoch, of all that counts of what was said of it: one statement at least."""
    opened = [one for one in said.values() if one.kind is Kind.OPENED]
    boxes = frozenset[DeviceId]().union(*(one.devices for one in opened))
    learned = frozenset[bytes]().union(*(one.learned for one in opened))
    unknown = opened[0].unknown.intersection(*(one.unknown for one in opened)) if opened else frozenset[bytes]()
    wanted = frozenset(one.signer for one in said.values() if one.kind is Kind.WANTED)
    handed = frozenset(
        (one.signer, device) for one in said.values() if one.kind is Kind.HANDED for device in one.devices
    )
    name = next(iter(said.values())).name
    known = _known_by({name.opener, *boxes}, handed)
    return Epoch(name, said, bool(opened), boxes, handed, wanted, learned, unknown, known)


def _known_by(known: set[DeviceId], handed: frozenset[tuple[DeviceId, DeviceId]]) -> frozenset[DeviceId]:
    to: dict[DeviceId, list[DeviceId]] = {}
    for giver, device in handed:
        to.setdefault(giver, []).append(device)
    waiting = list(known)
    while waiting:
        new = set(to.pop(waiting.pop(), ())) - known
        known |= new
        waiting += new
    return frozenset(known)


Lack = tuple[bytes, DeviceId]
"""An epoch, and a device that is to get its key and has not."""


@dataclass(frozen=True, slots=True)
class RoomKeys:
    """All of it; ``step`` makes each state of the one before.

    Args:
        room: the room.
        own: our device.
        roster: every device of every member, by its id.
        history: what new members may read.
        removals: ids of all removals of members and devices that are known here, whether they count or not.
        shares: what was said, as far as it counts.
        epochs: by id, made of that.
        keys: of epochs, by their id; secret.
        current: id of the epoch to write under, whether its key is here or not; None where another has to begin.
        forgotten: epochs of a lower number are never opened again.
        our_turn: whether we have just changed who may read, and so begin the next epoch at once.
        since: when it was first seen that an epoch is due, or a key lacking, Unix milliseconds.
        asked: epochs whose key we have asked for.
        told: what was told already, by the device that it was told of.
    """

    room: RoomId
    own: OwnDevice
    roster: Mapping[DeviceId, Member] = field(default_factory=dict)
    history: History = History.SHARED
    removals: frozenset[bytes] = frozenset()
    shares: Shares = field(default_factory=Shares)
    epochs: Mapping[bytes, Epoch] = field(default_factory=dict)
    keys: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    current: bytes | None = None
    forgotten: int = 0
    our_turn: bool = False
    since: Mapping[Lack, int] = field(default_factory=dict)
    asked: frozenset[bytes] = frozenset()
    told: Mapping[DeviceId, frozenset[tuple[str, bytes]]] = field(default_factory=dict)


def phase_of(state: RoomKeys) -> Phase:
    """Return how it stands with writing to the room."""
    if state.own.id not in state.roster:
        return Phase.OUTSIDE
    if state.current is None:
        return Phase.DUE
    return Phase.READY if state.current in state.keys else Phase.LACKING


def writing_key(state: RoomKeys) -> tuple[bytes, bytes] | None:
    """Return the id and the key of the epoch to seal under now; None while nothing may be sealed."""
    if phase_of(state) is not Phase.READY or state.current is None:
        return None
    return state.current, state.keys[state.current]


def reading_key(state: RoomKeys, epoch: bytes) -> bytes | None:
    """Return the key of an epoch, of any that was handed to us and not forgotten; None where it is not here."""
    return state.keys.get(epoch)
