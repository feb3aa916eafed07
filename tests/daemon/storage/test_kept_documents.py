"""What events name by digest: kept once, within bounds, as long as an event names it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sublet.daemon.storage import event_log, kept_documents
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.protocol.canonical import JsonValue
from sublet.protocol.documents import MAX_DOCUMENT_BYTES, Document, document, unpacked
from sublet.protocol.events import EventFilter, EventKind

pytestmark = pytest.mark.anyio


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    store = await Store.open(tmp_path / "sublet.db")
    try:
        yield Journal(store)
    finally:
        await store.close()


def made(value: JsonValue) -> Document:
    found = document(value)
    assert found is not None
    return found


async def note(journal: Journal, *keeps: Document) -> int:
    return (await journal.events.append_event(EventKind.TOOL_CALL, None, {}, keeps=keeps)).seq


async def rows(journal: Journal) -> list[tuple[str, int]]:
    query = "SELECT digest, last_event FROM documents ORDER BY last_event, digest"
    return await journal.events.read(lambda connection: [tuple(row) for row in connection.execute(query)])


def test_a_value_has_one_digest_and_comes_back() -> None:
    values: list[JsonValue] = [{"b": [1, 2.5, None], "a": "\ud800 half"}, "text", [], {"x": {"y": True}}]
    for value in values:
        assert unpacked(made(value)) == value
    assert made({"a": 1, "b": 2}).digest == made({"b": 2, "a": 1}).digest
    assert document("x" * MAX_DOCUMENT_BYTES) is None


@pytest.mark.parametrize("packed", [b"no zlib", made("other").packed, made([0] * 10).packed[:-3]])
def test_what_is_damaged_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="not the bytes"):
        unpacked(Document(made("this").digest, packed))


async def test_what_many_events_name_is_kept_once(journal: Journal) -> None:
    one, other = made({"rules": 1}), made({"rules": 2})
    first = await note(journal, one, other)
    await note(journal, one)
    assert {digest for digest, _ in await rows(journal)} == {one.digest, other.digest}
    assert {at for _, at in await rows(journal)} == {first}
    assert await journal.events.documents([one.digest, other.digest, "0" * 64]) == {
        one.digest: {"rules": 1},
        other.digest: {"rules": 2},
    }


async def test_it_goes_with_the_last_event_that_names_it(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "KEEP_EVENTS", 4)
    monkeypatch.setattr(event_log, "PRUNE_EVERY", 2)
    monkeypatch.setattr(kept_documents, "NOTED_EVERY", 2)
    used, unused = made("used"), made("unused")
    await note(journal, used, unused)
    for _ in range(11):
        await note(journal, used)
    assert list(await journal.events.documents([used.digest, unused.digest])) == [used.digest]
    # Whatever is still there is not named by what is gone only.
    oldest = (await journal.events.events_after(0, only=EventFilter())).events[0].seq
    assert all(at + 2 >= oldest for _, at in await rows(journal))


async def test_beyond_the_bound_what_was_not_named_for_longest_goes(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [made(f"{n}") for n in range(6)]
    monkeypatch.setattr(kept_documents, "MAX_KEPT_BYTES", 3 * len(documents[0].packed))
    for one in documents:
        await note(journal, one)
    assert [digest for digest, _ in await rows(journal)] == [one.digest for one in documents[3:]]


async def test_what_is_damaged_on_the_disk_is_as_good_as_gone(journal: Journal) -> None:
    one = made("x")
    await note(journal, one)
    await journal.events.transact(
        lambda connection, _: connection.execute("UPDATE documents SET packed = x'00'").rowcount
    )
    assert await journal.events.documents([one.digest]) == {}


async def test_an_event_of_another_version_is_read_by_its_name(journal: Journal) -> None:
    seq = await note(journal)
    await journal.events.transact(
        lambda connection, _: connection.execute("UPDATE events SET kind = 'of_tomorrow'").rowcount
    )
    [event] = (await journal.events.events_after(0)).events
    assert (event.seq, event.kind) == (seq, "of_tomorrow")
    assert type(event.model_validate_json(event.model_dump_json()).kind) is str
