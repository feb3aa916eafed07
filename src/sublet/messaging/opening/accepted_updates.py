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
        self._lasting: list[tuple[int, Update, int]] = []

    def read(self, seq: int) -> Update:
        """Return an accepted update by its number in the log."""
        staged = self.staged.get(seq)
        if staged is not None:
            return staged
        if seq in self._updates:
            self._updates.move_to_end(seq)
            return self._updates[seq][0]
        payload = unpack(self._store.envelope(seq)).payload
        update = decode_update(payload)
        self._keep(seq, update, len(payload))
        return update

    def stage(self, seq: int, update: Update, size: int, *, lasts: bool) -> None:
        """Have an update at hand that is accepted, before it is in the store.

        Args:
            seq: its number in the log.
            update: the update.
            size: of its payload, bytes.
            lasts: whether it brings elements, so that it may be read again once it is durable.
        """
        self.staged[seq] = update
        if lasts:
            self._lasting.append((seq, update, size))

    def settled(self) -> None:
        """Note that what was staged is durable. The first edits of a message read what it was sent with."""
        self.staged.clear()
        for seq, update, size in self._lasting:
            self._keep(seq, update, size)
        self._lasting.clear()

    def unstage(self) -> None:
        """Forget what was staged, which is not kept."""
        self.staged.clear()
        self._lasting.clear()

    def _keep(self, seq: int, update: Update, size: int) -> None:
        size += ITEM_BYTES * (len(update.items) + len(update.deletions))
        before = self._updates.pop(seq, None)
        self._updates[seq] = update, size
        self._size += size - (before[1] if before is not None else 0)
        while len(self._updates) > 1 and (len(self._updates) > UPDATES_KEPT or self._size > UPDATES_KEPT_BYTES):
            self._size -= self._updates.popitem(last=False)[1][1]

    def forget(self) -> None:
        """Forget updates by their numbers, which may be given anew."""
        self._updates.clear()
        self._size = 0
