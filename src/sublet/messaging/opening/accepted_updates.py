"""Accepted updates by their numbers in the log: those of the batch, and a bounded cache of those that are durable.

Rules: an update is decoded once while it is in use. Weak: the cache is bounded by an estimate of what an item takes.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from sublet.messaging.ports.store import Store
from sublet.protocol.ezagent.envelope import unpack
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.update import Update

UPDATES_KEPT: Final = 512
UPDATES_KEPT_BYTES: Final = 16 << 20
FEW_ITEMS: Final = 8
"""What writes so few, such as an edit, is read again by its row and not from the log."""
ITEM_BYTES: Final = 320
"""What one item of an update takes in memory beside its bytes, about."""


class AcceptedUpdates:
    """Decoded updates.

    Args:
        store: where the log is.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._updates: OrderedDict[int, tuple[Update, int]] = OrderedDict()
        self._size = 0
        self.staged: dict[int, Update] = {}
        """Updates that were accepted and are not in the store yet, by their number in the log."""

    def read(self, seq: int) -> Update:
        """Return an accepted update by its number in the log."""
        staged = self.staged.get(seq)
        if staged is not None:
            return staged
        kept = self._updates.get(seq)
        if kept is not None:
            self._updates.move_to_end(seq)
            return kept[0]
        payload = unpack(self._store.envelope(seq)).payload
        update = decode_update(payload)
        self._keep(seq, update, len(payload))
        return update

    def settled(self) -> None:
        """Note that what was staged is durable; what has elements is kept, since it is read again before long."""
        for seq, update in self.staged.items():
            if len(update.items) > FEW_ITEMS:
                self._keep(seq, update, 0)
        self.staged.clear()

    def _keep(self, seq: int, update: Update, payload_bytes: int) -> None:
        size = payload_bytes + ITEM_BYTES * (len(update.items) + len(update.deletions))
        self._updates[seq] = update, size
        self._size += size
        while len(self._updates) > 1 and (len(self._updates) > UPDATES_KEPT or self._size > UPDATES_KEPT_BYTES):
            self._size -= self._updates.popitem(last=False)[1][1]

    def forget(self) -> None:
        """Forget updates by their numbers, which may be given anew."""
        self._updates.clear()
        self._size = 0
