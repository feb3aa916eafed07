"""How one text becomes another, and what of that still fits where others have changed the text meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

MAX_LINES_COMPARED: Final = 2_000
"""Lines that differ; beyond these a text is replaced as a whole, since comparing takes the square of them."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Characters from ``index`` on, how many go, and what comes in their place."""

    index: int
    delete: int
    insert: str

    @property
    def end(self) -> int:
        """The first character after those that go."""
        return self.index + self.delete


def edits_between(old: str, new: str, limit: int) -> list[Edit]:
    """Return what makes ``old`` into ``new``, in order: at most ``limit`` places, which are few lines each.

    Args:
        old: a text.
        new: what it shall be.
        limit: of how many edits; where more would be needed, one takes in all that differs.
    """
    if old == new:
        return []
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    whole = [_narrowed(0, old, new)]
    if max(len(before), len(after)) > MAX_LINES_COMPARED:
        return whole
    edits, index, place = [], 0, 0
    for kind, low, high, from_line, to_line in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        index += sum(map(len, before[place:low]))
        place = low
        if kind != "equal":
            edits.append(_narrowed(index, "".join(before[low:high]), "".join(after[from_line:to_line])))
    return edits if len(edits) <= limit else whole


def carried_over(mine: Sequence[Edit], theirs: Sequence[Edit]) -> list[Edit] | None:
    """Return ``mine`` as they are in the text that ``theirs`` have made of the one that both begin with.

    Returns:
        The edits; None where both have changed the same characters.
    """
    carried = []
    for one in mine:
        shift = 0
        for other in theirs:
            if other.index < one.end and one.index < other.end:
                return None
            if other.end <= one.index:
                shift += len(other.insert) - other.delete
        carried.append(Edit(one.index + shift, one.delete, one.insert))
    return carried


def _narrowed(index: int, old: str, new: str) -> Edit:
    """Return the edit that makes ``old``, beginning at ``index``, into ``new``, but for what both have in common."""
    shorter = min(len(old), len(new))
    start = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    left = shorter - start
    end = next((at for at in range(left) if old[-1 - at] != new[-1 - at]), left)
    return Edit(index + start, len(old) - start - end, new[start : len(new) - end])
