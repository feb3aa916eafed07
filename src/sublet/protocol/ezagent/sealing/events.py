"""What happens to a room's keys, and what is to be done about it: what ``core.step`` takes and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from sublet.protocol.ezagent.sealing.state import History, Member, OwnDevice, RoomKeys
from sublet.protocol.ezagent.sealing.statements import KeyStatement
from sublet.protocol.ezagent.sealing.wire import DeviceId


@dataclass(frozen=True, slots=True)
class RosterChanged:
    """Other devices may read than before, or others are members.

    Args:
        roster: every device of every member.
        history: what new members may read.
        removals: ids of all removals of members and devices that are known, whether they count or not.
        by_us: whether our own device has changed that.
    """

    roster: Mapping[DeviceId, Member]
    history: History = History.SHARED
    removals: frozenset[bytes] = frozenset()
    by_us: bool = False


@dataclass(frozen=True, slots=True)
class StatementsCame:
    """Statements came, each proven, in any order, some perhaps again."""

    statements: tuple[KeyStatement, ...]


@dataclass(frozen=True, slots=True)
class DeviceRenewed:
    """Our device has other sealing keys; those that are not among them are deleted."""

    own: OwnDevice


@dataclass(frozen=True, slots=True)
class KeysForgotten:
    """The keys of epochs of a lower number than this are to be forgotten for good."""

    below: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    """It is time to look again.

    Args:
        fresh: as many random bytes as a key has, never used before: the key of the epoch that may begin now.
    """

    fresh: bytes


Event: TypeAlias = "RosterChanged | StatementsCame | DeviceRenewed | KeysForgotten | TimePassed"


class Complaint(StrEnum):
    """What is told about a device."""

    WITHHELD = "withheld"
    """It has begun an epoch, and neither it nor anybody else hands us the key."""
    UNOPENABLE = "unopenable"
    """What it has handed us as a key is none."""


@dataclass(frozen=True, slots=True)
class Say:
    """Let everybody in the room have this statement; the state has it already."""

    statement: KeyStatement


@dataclass(frozen=True, slots=True)
class KeysCame:
    """The keys of these epochs are here now; what was sealed under them can be read."""

    epochs: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the people in front of this device, once, of a device and an epoch."""

    complaint: Complaint
    device: DeviceId
    epoch: bytes


@dataclass(frozen=True, slots=True)
class Wake:
    """Say ``TimePassed`` at this time, Unix milliseconds; only the last one that was asked for counts."""

    at_ms: int


Output: TypeAlias = "Say | KeysCame | Tell | Wake"
Step: TypeAlias = "tuple[RoomKeys, tuple[Output, ...]]"
