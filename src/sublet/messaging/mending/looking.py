"""Looks at the database of rooms while it is used, in small pieces, so that nobody waits for that."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sublet.messaging.backends.blob_files import FileBlobs
from sublet.messaging.backends.sqlite_rows import SqliteRows
from sublet.messaging.engine.engine import Engine
from sublet.messaging.identities.keyring import LocalEntity
from sublet.messaging.mending.inspection import Found, KnownKeys, inspect, is_named_right
from sublet.messaging.mending.losses import Damage, Part
from sublet.messaging.mending.trials import Trials
from sublet.migrations import damage
from sublet.protocol.ezagent.blob import PIECE_BYTES
from sublet.protocol.ezagent.ids import EntityId

MAX_FOUND: Final = 1_024
"""Documents that lack something, found by one look; what is beyond is found by the next one."""
MAX_UNKNOWN: Final = 256
"""Signers whose keys are asked for after one look."""


class Looking:
    """See the module. Every method blocks; used by one thread at a time.

    Args:
        path: the database.
        make_trial: makes an engine over a store in memory.
        local: our own entities.
        pause: lets others have their turn; called every few milliseconds of work.
    """

    def __init__(
        self, path: Path, make_trial: Callable[[], Engine], local: list[LocalEntity], pause: Callable[[], None]
    ) -> None:
        self._path = path
        self._trials = Trials(make_trial)
        self._keys = KnownKeys(local)
        self._pause = pause

    def pages(self) -> Damage | None:
        """Return what SQLite's own check finds."""
        for why in damage.find(self._path):
            if why:
                return Damage(Part.PAGES, "", why)
            self._pause()
        return None

    def rows(self) -> Damage | None:
        """Return whether rows are torn by themselves, or updates are of no document."""
        with damage.reading(self._path) as db:
            rows = SqliteRows(db)
            for torn in rows.torn():
                if torn is not None:
                    return Damage(Part.ROWS, "", f"a row of {torn[0]} is torn")
                self._pause()
            if rows.strays():
                return Damage(Part.ROWS, "", "there are updates of no document")
            if not all(is_named_right(document) for document in rows.documents()):
                return Damage(Part.ROWS, "", "a document is called by no name of one")
        return None

    def sums(self, pause: Callable[[], None]) -> list[Damage]:
        """Return which documents lack something that was here, and rooms that lack documents, in the order found.

        This is a small part of what looking at each document costs, so it comes before that and rests less.

        Args:
            pause: lets others have their turn; called after every few documents.
        """
        found: list[Damage] = []
        with damage.reading(self._path) as db:
            for wrong in SqliteRows(db).sums().wrong():
                if wrong is None:
                    pause()
                    continue
                part, name = (Part.DOCUMENT, wrong.doc_id) if wrong.doc_id else (Part.TREE, wrong.room_id or "")
                found.append(Damage(part, name, wrong.why))
                if len(found) >= MAX_FOUND:
                    break
        return found

    def documents(self) -> list[str]:
        """Return the ids of the documents that are there."""
        with damage.reading(self._path) as db:
            return [row.doc_id for row in SqliteRows(db).documents()]

    def unknown(self) -> list[EntityId]:
        """Return signers whose keys are not here, though their updates are."""
        with damage.reading(self._path) as db:
            rows = SqliteRows(db)
            known = self._keys.of(rows.records())
            return [signer for signer in rows.signers() if signer not in known][:MAX_UNKNOWN]

    def blobs(self) -> list[str]:
        """Remove files of rooms that are not what their names say, which are hashes; return these names."""
        torn: list[str] = []
        blobs = FileBlobs(self._path.with_name("blobs"), 0)
        for digest, size, _ in blobs.all():
            found = hashlib.sha256()
            try:
                for offset in range(0, size, PIECE_BYTES):
                    found.update(blobs.read(digest, offset, PIECE_BYTES))
                    self._pause()
            except OSError:
                continue  # it is gone meanwhile, or looked at again
            if found.hexdigest() != digest and blobs.size(digest) == size:
                blobs.drop(digest)
                torn.append(digest)
        return torn

    def document(self, doc_id: str) -> Found | None:
        """Return what is wrong with a document; None where it is not there any more."""
        with damage.reading(self._path) as db:
            rows = SqliteRows(db)
            document = rows.find(doc_id)
            if document is None:
                return None
            return inspect(rows, document, self._keys.of(rows.records()), self._trials, self._pause)

    def rest(self) -> None:
        """Give back what takes memory until documents are looked at again."""
        self._trials.rest()
