"""The order of a document's elements and of the writes of one key: YATA, as yrs and Yjs decide it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sublet.protocol.ezagent.yjs.model import ItemId


@dataclass(slots=True, eq=False)
class Node:
    """One element in its place. ``length`` counts the items that were added with it: itself and its first fields."""

    id: ItemId
    length: int
    origin: ItemId | None
    right: ItemId | None
    entry_id: str
    signer: str
    seq: int
    previous: Node | None = None
    next: Node | None = None


class YataList:
    """A linked list into which nodes are integrated in any order that keeps causes before effects."""

    def __init__(self) -> None:
        self.head: Node | None = None
        self.tail: Node | None = None
        self.nodes: dict[ItemId, Node] = {}
        self.by_entry: dict[str, Node] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def integrate(self, node: Node) -> None:
        """Put a node where YATA puts it; its neighbours at insertion must be here.

        Raises:
            KeyError: a neighbour is not here.
        """
        left = self.nodes[node.origin] if node.origin is not None else None
        right = self.nodes[node.right] if node.right is not None else None
        other = left.next if left is not None else self.head
        if other is not right:
            left = self._conflict(node, left, other, right)
        following = left.next if left is not None else self.head
        node.previous, node.next = left, following
        if left is not None:
            left.next = node
        else:
            self.head = node
        if following is not None:
            following.previous = node
        else:
            self.tail = node
        self.nodes[node.id] = node
        if (
            node.id < self.by_entry.setdefault(node.entry_id, node).id
        ):  # one author gave two elements one id: all replicas take the same
            self.by_entry[node.entry_id] = node

    def _conflict(self, node: Node, left: Node | None, other: Node | None, right: Node | None) -> Node | None:
        """Return the node after which a node comes that others were inserted beside."""
        conflicting: set[ItemId] = set()
        passed: set[ItemId] = set()
        while other is not None and other is not right:
            passed.add(other.id)
            conflicting.add(other.id)
            if other.origin == node.origin:
                if other.id[0] < node.id[0]:
                    left = other
                    conflicting.clear()
                elif other.right == node.right:
                    break
            elif other.origin is not None and other.origin in passed:
                if other.origin not in conflicting:
                    left = other
                    conflicting.clear()
            else:
                break
            other = other.next
        return left

    def __iter__(self) -> Iterator[Node]:
        node = self.head
        while node is not None:
            yield node
            node = node.next

    def precedes(self, first: Node, second: Node) -> bool:
        """Tell whether one of two different nodes comes before the other; costs as much as they are apart."""
        behind_first, behind_second = first.next, second.next
        while True:
            if behind_first is second or behind_second is None:
                return True
            if behind_second is first or behind_first is None:
                return False
            behind_first, behind_second = behind_first.next, behind_second.next

    def backwards(self, before: Node | None = None) -> Iterator[Node]:
        """Yield nodes from the last, or from the one before ``before``, to the first."""
        node = before.previous if before is not None else self.tail
        while node is not None:
            yield node
            node = node.previous

    def forwards(self, after: Node | None = None) -> Iterator[Node]:
        """Yield nodes from the first, or from the one after ``after``, to the last."""
        node = after.next if after is not None else self.head
        while node is not None:
            yield node
            node = node.next


LinkT = TypeVar("LinkT")


def in_order(links: Sequence[tuple[ItemId, ItemId | None, ItemId | None, LinkT]]) -> list[LinkT]:
    """Return the writes of one key in YATA's order; the last is the one that a reader without rules would see.

    Args:
        links: id, origin, right neighbour and the thing itself, in the order of acceptance.
    """
    if len(links) == 1:
        return [links[0][3]]
    chain, found = YataList(), dict[ItemId, LinkT]()
    for id, origin, right, thing in links:
        known = chain.nodes
        node = Node(id, 1, origin if origin in known else None, right if right in known else None, "", "", 0)
        chain.integrate(node)
        found[id] = thing
    return [found[node.id] for node in chain]
