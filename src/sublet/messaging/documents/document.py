"""One open document: who wrote up to where, the order of its elements, and where each item of an update belongs.

Rules: planning an update changes nothing; accepting it does. Nothing is put before another, so replicas order alike;
refs stand by their ranks (``ranked.py``), other elements as YATA has them.
Fields are not in memory, they come from the log, and elements not before they are needed: what annotates a few refs of
a shard reads these alone. Weak: where all are needed there is a node for each, so a shard is bounded in refs.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from sublet.messaging.documents.elements import Elements
from sublet.messaging.documents.held import HeldUpdate, HeldUpdates, Need
from sublet.messaging.documents.in_memory import InMemory
from sublet.messaging.documents.plan import LOST, OPAQUE, Fresh, Located, NewEntry, NewWrite, Plan, plain_value, put
from sublet.messaging.documents.sequence import Node
from sublet.messaging.ports.rows import DocumentRow, EntryRow, Fork, WriteRow
from sublet.messaging.ports.store import Store
from sublet.protocol.ezagent.digest_tree import FORKS_OF_OUTCAST
from sublet.protocol.ezagent.envelope import Envelope
from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.ids import EntityId, is_client_of
from sublet.protocol.ezagent.keys import DocumentPlace
from sublet.protocol.ezagent.roots import Root, StorageType
from sublet.protocol.ezagent.yjs.update import HOLE, MAP, TYPE, Item, ItemId, Update

MAX_DEPTH: Final = 16
"""Of maps in maps."""
LAYOUTS_KEPT: Final = 256
LAYOUT_ITEMS_KEPT: Final = 1 << 16
"""Of all layouts of a document together."""
MAX_FORKS_OF_SIGNER: Final = FORKS_OF_OUTCAST
"""Clients of one signer that fork in one document, before nothing of that signer counts there."""
MAX_VOID_CLIENTS: Final = 65_536
HEAD_BYTES: Final = 16


class Document:
    """A document while it is open; owned by one thread.

    Args:
        row: its row in the store.
        place: what its id says.
        roots: its root types.
        store: where its entries and writes are.
        payload: returns an accepted update's bytes by its number in the log.
        entry_key: the field that names an element of its array.
        is_new: whether nothing of it can be in the store.
        counted: with which other documents it is counted together.
    """

    def __init__(
        self,
        row: DocumentRow,
        place: DocumentPlace,
        roots: tuple[Root, ...],
        store: Store,
        payload: Callable[[int], Update],
        entry_key: str,
        *,
        is_new: bool = False,
        counted: InMemory | None = None,
    ) -> None:
        self.row = row
        self.place = place
        self._roots = {root.name: root for root in roots}
        self._array = next((root.name for root in roots if root.storage is StorageType.CRDT_ARRAY), None)
        self._has_text = any(root.storage is StorageType.CRDT_TEXT for root in roots)
        self._store = store
        self._payload = payload
        self._entry_key = entry_key
        forks = [] if is_new else store.trust.forks(row.number)
        self.forks: dict[int, int] = {fork.client: fork.clock for fork in forks}
        """From which clock on a client's updates don't count, since it has made two of them."""
        self._outcasts = _outcasts(forks)
        self._void_clients: dict[int, bool] = {}
        self._heads: dict[int, bytes] = {}
        self.clients: dict[int, tuple[int, EntityId]] = {} if is_new else store.clients(row.number)
        self._counted = counted or InMemory()
        self._counted.clients += len(self.clients)
        self.held = HeldUpdates(counted)
        self.staged_writes: dict[ItemId, WriteRow] = {}
        self.unwritten = 0
        """Elements of our own that wait to be written."""
        self.unsettled = False
        """Whether an update was accepted that is not durable yet."""
        self._layouts: OrderedDict[ItemId, dict[int, Located]] = OrderedDict()
        self._layout_items = 0
        self._elements: tuple[Update, frozenset[ItemId]] | None = None
        """Of the update that was asked about last."""
        is_read = is_new or self._array is None
        self.elements = Elements(store, row.number, place.shard_id, is_read=is_read, counted=counted)

    @property
    def is_idle(self) -> bool:
        """Whether all of it can be read again: nothing is in memory alone."""
        return not self.held and not self.staged_writes and not self.unsettled and not self.unwritten

    def let_go(self) -> None:
        """Be counted no more, since it is closed; whoever has it in hand still reads on."""
        self._counted.clients -= len(self.clients)
        self._counted = InMemory()
        self.held.let_go()
        self.elements.let_go()

    @property
    def is_array(self) -> bool:
        """Whether it may have elements."""
        return self._array is not None

    @property
    def is_shard(self) -> bool:
        """Whether its elements are refs."""
        return self.place.shard_id is not None

    @property
    def room_part(self) -> str:
        """Return the part of the document's id after the room's, as removals name it."""
        return self.row.doc_id.split("/", 2)[2]

    @property
    def root(self) -> str:
        """Return the name of the document's first root type."""
        return next(iter(self._roots))

    @property
    def text_root(self) -> str:
        """Return the name of the document's text.

        Raises:
            KeyError: it holds none.
        """
        found = next((root.name for root in self._roots.values() if root.storage is StorageType.CRDT_TEXT), None)
        if found is None:
            raise KeyError(self.row.doc_id)
        return found

    def vector(self) -> dict[int, int]:
        """Return the state vector."""
        return {client: clock for client, (clock, _) in self.clients.items()}

    def next_clock(self, client: int) -> int:
        """Return the clock that a client's next item has."""
        return self.clients[client][0] if client in self.clients else 0

    def is_void(self, item: ItemId) -> bool:
        """Tell whether an item is of the part of a client that forks, of which every peer may hold another."""
        fork = self.forks.get(item[0])
        if fork is None and self._outcasts:
            return self._is_of_outcast(item[0])
        return fork is not None and item[1] >= fork

    def _is_of_outcast(self, client: int) -> bool:
        """Tell whether a client is of a signer who has forked too often."""
        found = self._void_clients.get(client)
        if found is None:
            found = any(is_client_of(client, signer) for signer in self._outcasts)
            if len(self._void_clients) < MAX_VOID_CLIENTS:
                self._void_clients[client] = found
        return found

    def extended(self, update: Update, payload: bytes) -> tuple[bytes | None, bytes | None]:
        """Return the head of an update's client before the update and with it; None each where there is none."""
        if not update.items:
            return None, None
        head = self._heads.get(update.client)
        if head is None:
            is_known = update.client in self.clients
            head = (self._store.trust.head(self.row.number, update.client) if is_known else None) or b""
        digest = hashlib.sha256(head + update.end.to_bytes(4, "big") + payload).digest()[:HEAD_BYTES]
        self._heads[update.client] = digest
        return head or None, digest

    def known(self, update: Update) -> bool:
        """Tell whether an update brings nothing; one that only deletes is looked up by the caller."""
        return bool(update.items) and update.end <= self.next_clock(update.client)

    def missing(self, update: Update) -> bool:
        """Tell whether an update needs something that is not here yet."""
        return self._absent(update, 0) is not None

    def _absent(self, update: Update, begin: int) -> Need | None:
        """Return what an update needs that is not here yet; None where there is nothing.

        Args:
            update: the update.
            begin: how many of its items and deletions were found to need nothing before.
        """
        client, end = update.client, update.end
        if update.items and update.start > self.next_clock(client):
            return Need((client, update.start - 1), 0)

        def absent(item: ItemId | str | None) -> bool:
            if not isinstance(item, tuple):
                return False
            upto = end if item[0] == client else self.next_clock(item[0])
            return item[1] >= upto and not (self.forks and self.is_void(item))

        items = update.items
        for place in range(begin, len(items)):
            item, parent = items[place], items[place].parent
            is_own = isinstance(parent, tuple) and parent[0] == client and parent[1] < end
            if is_own and item.origin is None and item.right is None:
                continue  # as with nearly all
            for other in (item.origin, item.right, item.parent):
                if absent(other):
                    assert isinstance(other, tuple), "what is absent is an item"
                    return Need(other, place)
        for place in range(max(begin - len(items), 0), len(update.deletions)):
            cut = update.deletions[place]
            if absent(last := (cut.client, cut.clock + cut.length - 1)):
                return Need(last, len(items) + place)
        return None

    def hold(self, digest: bytes, envelope: Envelope, update: Update) -> None:
        """Keep an update until what it needs is here."""
        need = self._absent(update, 0)
        assert need is not None, "it needs something"
        self.held.add(digest, envelope, update, need)

    def release(self) -> list[HeldUpdate]:
        """Return the held updates that need nothing any more, and hold them no longer."""
        return self.held.take(
            lambda item: item[1] >= self.next_clock(item[0]) and not (self.forks and self.is_void(item)), self._absent
        )

    def plan(self, update: Update) -> Plan:
        """Return what an update does here.

        Raises:
            Refused: ``WRONG_SHAPE``: it writes something that such a document does not hold, or puts it before another,
                which no writer of a timeline or of keys does: so nobody places a thing where replicas disagree.
        """
        plan, fresh = Plan(), Fresh()
        entry: NewEntry | None = None
        for item in update.items:
            if item.kind == HOLE:
                continue
            if entry is not None and entry.continues(item):
                fresh.add(item, entry.add(item))
                continue
            located = self._locate_new(update, item, fresh)
            if item.right is not None and OPAQUE not in located.path:
                raise Refused(Refusal.WRONG_SHAPE, "something that is put before another, where all are added behind")
            fresh.add(item, located)
            if not located.path and located.entry is not None:
                entry = NewEntry(located.entry, item, item.length, {}, set())
                plan.entries.append(entry)
            elif located.path[0] != OPAQUE:
                self._plan_key(plan, update, item, located)
        return plan

    def _plan_key(self, plan: Plan, update: Update, item: Item, located: Located) -> None:
        value = plain_value(item)
        entry = plan.entries[-1] if plan.entries else None
        if (
            entry is not None
            and located.entry == (update.client, entry.item.clock)
            and item.clock == entry.item.clock + entry.length
            and item.origin is None
        ):
            entry.length += item.length
            put(entry, located, value, located.nested)
            return
        plan.writes.append(NewWrite(item, located, value, located.nested))

    def _locate_new(self, update: Update, item: Item, fresh: Fresh) -> Located:
        nested = item.kind == TYPE and item.value == MAP

        def known(other: ItemId) -> Located | None:
            if other[0] == update.client and other[1] >= update.start:
                return fresh.get(other[1])
            return self.locate(other)

        here = (update.client, item.clock)
        if isinstance(item.parent, str):
            return self._in_root(item, here, nested)
        if item.parent is not None:
            holder = known(item.parent)
            if self.forks and (holder is None or holder.path[:1] == (OPAQUE,)):
                return LOST
            if holder is None or not (holder.nested or not holder.path) or item.key is None:
                raise Refused(Refusal.WRONG_SHAPE, "a key of something that is no map")
            if len(holder.path) >= MAX_DEPTH:
                raise Refused(Refusal.WRONG_SHAPE, "maps that are nested too deep")
            container = item.parent if holder.path else None
            return Located(holder.entry, container, (*holder.path, item.key), nested)
        neighbour = item.origin or item.right
        beside = known(neighbour) if neighbour is not None else None
        if self.forks and neighbour is not None and (beside is None or beside.path[:1] == (OPAQUE,)):
            return self._element(item, here) if here in self._elements_of(update) else LOST
        if beside is None:
            if self._has_text:
                return Located(None, None, (OPAQUE,), nested=False)
            raise Refused(Refusal.WRONG_SHAPE, "beside something that is not here")
        if not beside.path:
            return self._element(item, here)
        return Located(beside.entry, beside.container, beside.path, nested)

    def _elements_of(self, update: Update) -> frozenset[ItemId]:
        """Return which items of an update are elements, where what they stand beside differs from peer to peer."""
        if self._array is None:
            return frozenset()
        if self._elements is None or self._elements[0] is not update:
            found = (one.parent for one in update.items if one.key == self._entry_key)
            self._elements = update, frozenset(parent for parent in found if isinstance(parent, tuple))
        return self._elements[1]

    def _in_root(self, item: Item, here: ItemId, nested: bool) -> Located:
        root = self._roots.get(str(item.parent))
        if root is None:
            raise Refused(Refusal.WRONG_SHAPE, "a root of another name")
        if root.storage is StorageType.CRDT_TEXT:
            return Located(None, None, (OPAQUE,), nested=False)
        if root.storage is StorageType.CRDT_ARRAY:
            if item.key is not None:
                raise Refused(Refusal.WRONG_SHAPE, "a key of an array")
            return self._element(item, here)
        if item.key is None or item.key.startswith(OPAQUE):
            raise Refused(Refusal.WRONG_SHAPE, "an element of a map")
        return Located(None, None, (item.key,), nested)

    def _element(self, item: Item, here: ItemId) -> Located:
        if item.kind != TYPE or item.value != MAP:
            raise Refused(Refusal.WRONG_SHAPE, "an element that is no map")
        return Located(here, None, (), nested=True)

    def locate(self, item: ItemId) -> Located | None:
        """Return where an accepted item belongs; None where that can't be told."""
        if self.forks and self.is_void(item):
            return None
        row = self.staged_writes.get(item)
        if row is None and self._array is not None:
            node = self.elements.holding(item)
            if node is not None:
                return Located(node.id, None, (), nested=True) if item == node.id else self._layout(node).get(item[1])
        row = row or self._store.find_write(self.row.number, item)
        if row is None:
            return None
        above = self.locate(row.container) if row.container is not None else None
        path = (*above.path, row.key) if above is not None else (row.key,)
        return Located(row.entry, row.container, path, nested=row.value is None)

    def _layout(self, node: Node) -> dict[int, Located]:
        """Return where the items that were added with an element belong, from the log."""
        layout = self._layouts.get(node.id)
        if layout is None:
            layout = {}
            items, end = self._payload(node.seq).items, node.id[1] + node.length
            for at in range(bisect_right(items, node.id[1], key=_clock), len(items)):
                item = items[at]
                if item.clock >= end:
                    break
                if isinstance(item.parent, tuple):
                    above = layout.get(item.parent[1])
                    path = (*(above.path if above is not None else ()), str(item.key))
                    container = item.parent if above is not None else None
                    layout[item.clock] = Located(node.id, container, path, item.kind == TYPE)
            self._layouts[node.id] = layout
            self._layout_items += len(layout)
            while len(self._layouts) > 1 and (
                len(self._layouts) > LAYOUTS_KEPT or self._layout_items > LAYOUT_ITEMS_KEPT
            ):
                self._layout_items -= len(self._layouts.popitem(last=False)[1])
        return layout

    def accept(self, update: Update, signer: EntityId, entries: Iterable[EntryRow]) -> None:
        """Take an update that was found good: its clocks and its elements."""
        if update.items:
            self._counted.clients += update.client not in self.clients
            self.clients[update.client] = (update.end, signer)
        for entry in entries:
            self.elements.add(entry)


def _clock(item: Item) -> int:
    return item.clock


def _outcasts(forks: Iterable[Fork]) -> frozenset[EntityId]:
    often = Counter(fork.signer for fork in forks)
    return frozenset(signer for signer, count in often.items() if count >= MAX_FORKS_OF_SIGNER)
