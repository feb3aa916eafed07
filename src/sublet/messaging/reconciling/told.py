"""What fits into one answer to a peer: envelopes, with the contents that they name and the records of their signers."""

from __future__ import annotations

from typing import Final

from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.ports.rows import DocumentRow
from sublet.messaging.ports.store import Store
from sublet.protocol.ezagent.bundle import RecordKind
from sublet.protocol.ezagent.envelope import unpack
from sublet.protocol.patterns import Pattern

MAX_CONTENTS_BYTES: Final = 5 << 20
"""Of one update, more than any of ours names; what is beyond is left out."""

_CONTENT_ID: Final = Pattern(rb"sha256:[0-9a-f]{64}")


class Told:
    """What fits into one answer.

    Args:
        limit: bytes; the first thing always fits.
    """

    def __init__(self, limit: int) -> None:
        self.records: list[tuple[RecordKind, bytes]] = []
        self.envelopes: list[bytes] = []
        """Whose signers the answer names."""
        self.is_cut = False
        self._left = limit

    def add(self, envelope: bytes, records: list[tuple[RecordKind, bytes]]) -> bool:
        """Add what belongs together; tell whether there was room for it."""
        size = sum(len(raw) for _, raw in records)
        if self.is_cut or (size > self._left and self.records):
            self.is_cut = True
            return False
        self._left -= size
        self.records += records
        self.envelopes.append(envelope)
        return True


def records_of(keyring: Keyring, envelopes: list[bytes]) -> list[bytes]:
    """Return the records of those who have signed some envelopes, as far as they are known here."""
    signers = {unpack(raw).signer for raw in envelopes}
    found = (keyring.record(signer) for signer in sorted(signers))
    return [record.encode() for record in found if record is not None]


def contents_of(store: Store, document: DocumentRow, envelope: bytes) -> list[bytes]:
    """Return the contents that an update names; of more than an answer may hold, the first ones.

    Whoever asks keeps those alone that the update names as its contents, so no more is looked at here than where ids
    stand in its bytes.
    """
    room_id, left, found = document.room_id, MAX_CONTENTS_BYTES, list[bytes]()
    assert room_id is not None, "contents are of rooms"
    for content_id in dict.fromkeys(_CONTENT_ID.findall(envelope)):
        raw = store.content(room_id, content_id.decode(), document.number)
        if raw is not None and len(raw) <= left:
            found.append(raw)
            left -= len(raw)
    return found
