"""How much of what devices say of a room's keys is kept: a share for each, whatever order it came in.

Rules: of each signer the statements count that stand first, by kind, number and id, until its share is full; the share
is the same for all, and as large as all of them together let it be. A statement that does not fit closes the share for
all that would stand behind it. So what counts is a function of the set of statements: what counts in the end was never
left out before, and what was left out once never counts. Nobody takes anything of another's share, but all shares are
smaller where many fill theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from sublet.protocol.ezagent.sealing.statements import EpochName, KeyStatement, Kind
from sublet.protocol.ezagent.sealing.wire import DeviceId

MAX_SHARE: Final = 65_536
"""Of one device, in entries of about 100 bytes: a box, a removal."""
MAX_SHARES: Final = 524_288
"""Of all devices of a room, in the same entries."""
OPENED_ENTRIES: Final = 64
"""What an epoch costs its opener, so that it opens at most 1,024."""
SAID_ENTRIES: Final = 8
"""What any other statement costs its signer."""

Rank: TypeAlias = tuple[int, int, bytes]
"""Where a statement stands in its signer's share: its kind, the epoch's number, and its own id."""


@dataclass(frozen=True, slots=True)
class Said:
    """What is kept of a statement.

    Args:
        kind: what it says.
        name: of which epoch.
        signer: device that has signed it.
        devices: for which it holds a box.
        learned: as in the statement.
        unknown: as in the statement.
        rank: where it stands in its signer's share.
        opens: whether our own box in it holds the key.
    """

    kind: Kind
    name: EpochName
    signer: DeviceId
    devices: frozenset[DeviceId]
    learned: frozenset[bytes]
    unknown: frozenset[bytes]
    rank: Rank
    opens: bool = False

    @property
    def entries(self) -> int:
        """Return what it costs its signer."""
        base = OPENED_ENTRIES if self.kind is Kind.OPENED else SAID_ENTRIES
        return base + len(self.devices) + len(self.learned) + len(self.unknown)


def rank_of(statement: KeyStatement) -> Rank:
    """Return where a statement stands in its signer's share."""
    return int(statement.kind), statement.epoch.number, statement.id


def said_of(statement: KeyStatement, rank: Rank, *, opens: bool) -> Said:
    """Return what is kept of a statement."""
    devices = frozenset(device for device, _ in statement.boxes)
    epoch, signer = statement.epoch, statement.signer
    return Said(statement.kind, epoch, signer, devices, statement.learned, statement.unknown, rank, opens)


@dataclass(frozen=True, slots=True)
class Share:
    """What one device has said, and from where on nothing of it counts; None where all of it does."""

    kept: Mapping[Rank, Said] = field(default_factory=dict)
    entries: int = 0
    closed: Rank | None = None

    def takes(self, rank: Rank) -> bool:
        """Tell whether a statement is not kept yet, and may count."""
        return rank not in self.kept and (self.closed is None or rank < self.closed)


@dataclass(frozen=True, slots=True)
class Shares:
    """What all devices have said; ``most`` is what one may fill."""

    by_signer: Mapping[DeviceId, Share] = field(default_factory=dict)
    most: int = field(default_factory=lambda: MAX_SHARE)

    def of(self, signer: DeviceId) -> Share:
        """Return what one device has said."""
        return self.by_signer.get(signer, _NOTHING)

    def holds(self, statements: Iterable[KeyStatement]) -> bool:
        """Tell whether statements of one device surely count, so that it is worth while to say them."""
        said = [said_of(statement, rank_of(statement), opens=False) for statement in statements]
        if not said:
            return True
        share = self.of(said[0].signer)
        fits = share.entries + sum(one.entries for one in said) <= self.most
        return fits and all(share.takes(one.rank) for one in said)


_NOTHING: Final = Share()


def with_said(shares: Shares, new: Iterable[Said]) -> tuple[Shares, set[bytes]]:
    """Return the shares with more statements, and the ids of all epochs of which something came or went.

    Args:
        shares: as they were.
        new: statements that their signers' shares take.
    """
    by_signer = dict(shares.by_signer)
    came: dict[DeviceId, dict[Rank, Said]] = {}
    for one in new:
        came.setdefault(one.signer, {})[one.rank] = one
    touched: set[bytes] = set()
    for signer, ranked in came.items():
        share = shares.of(signer)
        added = share.entries + sum(one.entries for one in ranked.values())
        by_signer[signer] = replace(share, kept={**share.kept, **ranked}, entries=added)
        touched.update(one.name.id for one in ranked.values())
    most = _fair(shares.most, by_signer.values())
    for signer in by_signer if most < shares.most else came:
        if by_signer[signer].entries > most:
            by_signer[signer], gone = _cut(by_signer[signer], most)
            touched.update(one.name.id for one in gone)
    return Shares(by_signer, most), touched


def _fair(most: int, shares: Iterable[Share]) -> int:
    """Return what one device may fill, so that all of them together stay within ``MAX_SHARES``."""
    left = MAX_SHARES
    wants = sorted(most if share.closed is not None else min(share.entries, most) for share in shares)
    for number, want in enumerate(wants):
        if want * (len(wants) - number) > left:
            return left // (len(wants) - number)
        left -= want
    return most


def _cut(share: Share, most: int) -> tuple[Share, list[Said]]:
    """Return a share of at most so many entries, and what no longer counts."""
    ranks = sorted(share.kept)
    filled = 0
    for at, rank in enumerate(ranks):
        entries = share.kept[rank].entries
        if filled + entries > most:
            gone = [share.kept[one] for one in ranks[at:]]
            return Share({one: share.kept[one] for one in ranks[:at]}, filled, rank), gone
        filled += entries
    return share, []
