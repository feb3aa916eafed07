"""Knows which process an entity's daemon is: what steers something of an earlier one steers nothing now (DESIGN 6.9).

Rules: ours is another one in every process; of others the one that was signed last counts. Weak: a daemon that says
nothing after its restart is taken for the process before.
"""

from __future__ import annotations

import os
from typing import Final

from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.ports.store import Store
from sublet.protocol.ezagent.acknowledgement import EPOCH_BYTES
from sublet.protocol.ezagent.ids import EntityId

_INDEX: Final = "epochs"


class Epochs:
    """Our own epoch, which is another in every process, and those that others have signed.

    Args:
        store: where the latter are kept.
        keyring: which entities are ours.
    """

    def __init__(self, store: Store, keyring: Keyring) -> None:
        self._store = store
        self._keyring = keyring
        self.own = os.urandom(EPOCH_BYTES)

    def of(self, entity: EntityId) -> bytes | None:
        """Return the epoch of an entity's daemon when that last signed one; None if it never did."""
        if entity in self._keyring.local:
            return self.own
        known = self._store.scan_index(_INDEX, entity, 1)
        return bytes.fromhex(str(known[0].value["epoch"])) if known else None

    def learn(self, entity: EntityId, epoch: bytes, signed_ms: int) -> None:
        """Keep an epoch, unless a later one of the same entity is known."""
        known = self._store.scan_index(_INDEX, entity, 1)
        before = known[0].value["signed_ms"] if known else 0
        if isinstance(before, int) and before < signed_ms:
            self._store.put_index([IndexEntry(_INDEX, entity, "", {"epoch": epoch.hex(), "signed_ms": signed_ms})])
