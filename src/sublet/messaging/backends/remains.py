"""Looks in files of the database for what SQLite has left of rows that were erased. Everything here blocks.

``secure_delete`` overwrites what is deleted where it stood, and not where SQLite had moved it from. So a row is known
by a hash of how it begins, and every place in a file where such a row may begin is compared with those. Weak: what is
found in a file that a person has copied elsewhere is that person's.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

CHUNK_BYTES: Final = 4 << 20
COMPARED_BYTES: Final = 64
_BODY: Final = b'"body":"'
"""How the text of a content begins, which is canonical JSON."""
_DOCUMENT: Final = b"ezagent/"
"""How the id of a document begins, which stands in every envelope behind its length."""
_OVERLAP: Final = 1_024
_COPIES: Final = (".v*", ".damaged-*")
"""Whole copies of the database: those of before a migration, and those that were damaged."""
SET_ASIDE: Final = "set-aside"
LOST: Final = "-lost.db"


def mark_of_content(raw: bytes) -> bytes:
    """Return by what an immutable content is known."""
    at = max(raw.find(_BODY), 0)
    return _hash(raw[at : at + COMPARED_BYTES])


def mark_of_document(doc_id: str) -> bytes:
    """Return by what the envelopes of a document are known."""
    name = doc_id.encode()
    return _hash(len(name).to_bytes(2, "big") + name)


def holds(path: Path, marks: Collection[bytes]) -> bool:
    """Tell whether a file holds anything that is known by one of some marks; no where it can't be read."""
    known = frozenset(marks)
    with suppress(OSError), path.open("rb") as file:
        before = b""
        while chunk := file.read(CHUNK_BYTES):
            if any(mark in known for mark in _marks_in(before + chunk)):
                return True
            before = chunk[-_OVERLAP:]
    return False


def files_beside(path: Path) -> list[Path]:
    """Return the files in which rows of the database may be besides: copies of it, and what was set aside."""
    found = [one for pattern in _COPIES for one in path.parent.glob(path.name + pattern)]
    return [*found, *(one for one in (path.parent / SET_ASIDE).glob("*") if one.is_file() and not one.is_symlink())]


def drop_kept(path: Path, names: Collection[str]) -> None:
    """Forget updates of documents that wait beside the database for what they build on."""
    lost = path.with_name(path.stem + LOST)
    if not lost.is_file():
        return
    with suppress(sqlite3.Error), closing(sqlite3.connect(lost, isolation_level=None)) as db:
        db.execute("PRAGMA secure_delete=ON")
        db.executemany("DELETE FROM kept WHERE doc_id = ?", [(name,) for name in names])
        db.executemany("DELETE FROM lost WHERE doc_id = ?", [(name,) for name in names])
        db.execute("VACUUM")


def _marks_in(data: bytes) -> Iterator[bytes]:
    at = data.find(_BODY)
    while at >= 0:
        yield _hash(data[at : at + COMPARED_BYTES])
        at = data.find(_BODY, at + 1)
    at = data.find(_DOCUMENT, 2)
    while at >= 0:
        length = int.from_bytes(data[at - 2 : at], "big")
        if length < _OVERLAP:
            yield _hash(data[at - 2 : at + length])
        at = data.find(_DOCUMENT, at + 1)


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
