"""Which writes of a key their writer knew: each names the one that it replaces, and so all before that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sublet.protocol.ezagent.yjs.update import ItemId


class Ancestry:
    """All writes and what they replace, read once, so that asking costs the same however long the chains are.

    Args:
        origins: by each write the one that it replaces, which may be none of these.
    """

    def __init__(self, origins: Mapping[ItemId, ItemId | None]) -> None:
        self._span: dict[ItemId, tuple[int, int]] = {}
        children: dict[ItemId, list[ItemId]] = {}
        roots: list[ItemId] = []
        for item, origin in origins.items():
            if origin is not None and origin in origins:
                children.setdefault(origin, []).append(item)
            else:
                roots.append(item)
        number = 0
        begun: dict[ItemId, int] = {}
        for root in roots:
            stack = [root]
            while stack:
                item = stack[-1]
                if item in begun:
                    stack.pop()
                    self._span[item] = begun[item], number
                    continue
                begun[item], number = number, number + 1
                stack += children.get(item, ())

    def is_before(self, earlier: ItemId, later: ItemId) -> bool:
        """Tell whether the writer of one write knew another one of the same key."""
        one, other = self._span.get(earlier), self._span.get(later)
        return one is not None and other is not None and one[0] < other[0] < one[1]


@dataclass(frozen=True, slots=True)
class KnownWrites:
    """The writes of a key that the writer of one knew."""

    ancestry: Ancestry = field(compare=False, repr=False)
    item: ItemId
    is_first: bool

    def __contains__(self, other: ItemId) -> bool:
        return self.ancestry.is_before(other, self.item)
