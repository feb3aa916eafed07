"""The order of a room's messages: one rule over what their writers have signed, the same on every replica.

Each ref has a rank. It is the time in the ref's id, or one more than the highest rank of what its writer had seen,
whichever is more. What the writer had seen is signed as well: the ref on its left in the same document, and where
another document has a higher one, ``ext.after`` names that. Refs stand by rank, and by client and clock where ranks
are alike.

So a ref stands behind all that its writer had seen, whatever the writer's clock says; and it stands behind what the
writer had not seen only as far as its time says. Whoever writes from the year 2999 stands last until somebody answers
who has seen it: that answer has a higher rank. Nobody can stand where no one comes behind, since a rank only grows by
one with each ref that is really there, and a time ends with ``LAST_MS``. No clock of a reader takes part.

Weak: two refs that did not know of each other stand by the times that their writers claim.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from sublet.protocol.ezagent.ids import RefId, is_ref_id, ref_ms
from sublet.protocol.ezagent.ref_shape import LAST_MS
from sublet.protocol.ezagent.shards import is_shard
from sublet.protocol.ezagent.yjs.update import MAX_CLIENT, MAX_CLOCK, ItemId
from sublet.protocol.patterns import Pattern

AFTER: Final = "ext.after"
"""Names what a ref's writer had seen last in another document, where that has the higher rank."""
TICK_BITS: Final = 14
"""Ranks of one millisecond: so many refs may follow each other in it before they count as of the next."""
RANK_DIGITS: Final = 19
"""Of a rank as text, which orders as the numbers do: all ranks are below 2**63."""
_AFTER = Pattern(r"(\d{4}-\d\d(?:-\d{3})?)/(0|[1-9]\d{0,15})/(0|[1-9]\d{0,9})\Z")


class Place(NamedTuple):
    """Where a ref stands among the others of its room; places compare as refs stand."""

    rank: int
    client: int
    clock: int
    shard: str


@dataclass(frozen=True, slots=True)
class After:
    """A ref of another document of the room, by its shard and its item."""

    shard: str
    item: ItemId

    def __str__(self) -> str:
        return f"{self.shard}/{self.item[0]}/{self.item[1]}"


def parse_after(value: object) -> After | None:
    """Return the ref that a value of ``AFTER`` names; None where it names none."""
    match = _AFTER.match(value) if isinstance(value, str) else None
    if match is None or not is_shard(match[1]):
        return None
    client, clock = int(match[2]), int(match[3])
    return After(match[1], (client, clock)) if client <= MAX_CLIENT and clock <= MAX_CLOCK else None


def least_rank(ref_id: RefId) -> int:
    """Return the rank that the time in a ref's id alone gives it."""
    told = ref_ms(ref_id) if is_ref_id(ref_id) else 0
    return min(told, LAST_MS) << TICK_BITS


def rank_of(ref_id: RefId, seen: Iterable[int]) -> int:
    """Return a ref's rank.

    Args:
        ref_id: its id, which its writer has signed.
        seen: the ranks of what its writer says that they had seen, and that is here.
    """
    return max(least_rank(ref_id), *(rank + 1 for rank in seen), 0)


def stands_at_ms(rank: int) -> int:
    """Return the time at which a ref of some rank stands, Unix milliseconds: its own, or that of what it had seen."""
    return min(rank >> TICK_BITS, LAST_MS)


def rank_text(rank: int) -> str:
    """Return a rank as text, which orders as the numbers do."""
    return f"{rank:0{RANK_DIGITS}}"
