"""The store on SQLite: contents stand by the document that names them, and are found without it as well."""

from __future__ import annotations

from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.ports.rows import Batch

ONE, OTHER = (f"sha256:{digit * 64}" for digit in "ab")


def test_contents_are_found_in_their_room_with_and_without_the_document_that_names_them() -> None:
    store = SqliteStore(None)
    first, second = (store.document(f"ezagent/r/index/{month}", "r", "index").number for month in ("a", "b"))
    elsewhere = store.document("ezagent/s/index/a", "s", "index").number
    with store.transaction():
        store.write(Batch(contents={(first, ONE): b"one", (second, OTHER): b"other", (elsewhere, ONE): b"elsewhere"}))
        store.write(Batch(contents={(first, ONE): b"again"}))
    assert store.content("r", ONE, first) == store.content("r", ONE, second) == store.content("r", ONE) == b"one"
    assert store.content("r", OTHER) == b"other"
    assert store.content("s", ONE) == b"elsewhere"
    assert store.content("s", OTHER) is None
    store.close()
