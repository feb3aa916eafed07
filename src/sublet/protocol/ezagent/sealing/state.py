"""What a device knows of a room's keys: who is to have them, which epochs there are, and the keys that it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.sealing.statements import EpochName
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
    """An epoch, as far as statements tell.

    Args:
        name: which one.
        is_opened: whether its opener has said that it begins.
        boxes: devices for which its opener has sealed the key.
        handed: who has handed it to whom later; a device that hands it to itself has it.
        wanted_by: devices that have said that they lack it.
        learned: removals that its opener knew, and that of the epoch before did not.
        unknown: removals that the opener of the epoch before knew, and its own did not.
    """

    name: EpochName
    is_opened: bool = False
    boxes: frozenset[DeviceId] = frozenset()
    handed: frozenset[tuple[DeviceId, DeviceId]] = frozenset()
    wanted_by: frozenset[DeviceId] = frozenset()
    learned: frozenset[bytes] = frozenset()
    unknown: frozenset[bytes] = frozenset()
    known_by: frozenset[DeviceId] = field(init=False, compare=False)
    """Devices that hold its key, or may: its opener, and whom it was handed to by one that does. Whoever can't have the
    key hands it to nobody, so what a stranger says of it changes nothing."""

    def __post_init__(self) -> None:
        to: dict[DeviceId, list[DeviceId]] = {}
        for giver, device in self.handed:
            to.setdefault(giver, []).append(device)
        known = {self.name.opener, *self.boxes}
        waiting = list(known)
        while waiting:
            new = set(to.pop(waiting.pop(), ())) - known
            known |= new
            waiting += new
        object.__setattr__(self, "known_by", frozenset(known))


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
        epochs: by id.
        keys: of epochs, by their id; secret.
        current: id of the epoch to write under, whether its key is here or not; None where another has to begin.
        forgotten: epochs of a lower number are never opened again.
        our_turn: whether we have just changed who may read, and so begin the next epoch at once.
        since: when it was first seen that an epoch is due, or a key lacking, Unix milliseconds.
        asked: epochs whose key we have asked for.
        told: what was told already.
    """

    room: RoomId
    own: OwnDevice
    roster: Mapping[DeviceId, Member] = field(default_factory=dict)
    history: History = History.SHARED
    removals: frozenset[bytes] = frozenset()
    epochs: Mapping[bytes, Epoch] = field(default_factory=dict)
    keys: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    current: bytes | None = None
    forgotten: int = 0
    our_turn: bool = False
    since: Mapping[Lack, int] = field(default_factory=dict)
    asked: frozenset[bytes] = frozenset()
    told: frozenset[tuple[str, DeviceId, bytes]] = frozenset()


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
