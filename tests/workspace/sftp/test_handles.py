"""Open handles: their names, their bounds over all sessions of a lease, and listings page by page."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.quota import Quota
from sublet.workspace.sftp.handles import MAX_LISTINGS, Handle, HandleBudget, Handles, Listing
from sublet.workspace.sftp.wire import pack_entry
from support.views import default_rules

BAD = os.strerror(errno.EBADF)
FULL = os.strerror(errno.EMFILE)


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[WritableFs]:
    (tmp_path / "file").write_bytes(b"content")
    made = WritableFs(WritableFs.open_root(tmp_path), default_rules(), Quota(None, None), lambda _: None)
    yield made
    made.close()


@dataclass
class Memory:
    """What is open and on no disk."""

    entries: list[tuple[bytes, os.stat_result] | Exception | None] = field(default_factory=list)
    closed: int = 0
    fails: bool = False

    def read(self, size: int, offset: int) -> bytes:
        return b""

    def stat(self) -> os.stat_result:
        return os.stat_result((stat.S_IFDIR, 0, 0, 2, 1, 2, 3, 4, 5, 6))

    def entries_or_pauses(self) -> Iterator[tuple[bytes, os.stat_result] | None]:
        return self

    def __iter__(self) -> Iterator[tuple[bytes, os.stat_result] | None]:
        return self

    def __next__(self) -> tuple[bytes, os.stat_result] | None:
        if not self.entries:
            raise StopIteration
        entry = self.entries.pop(0)
        if isinstance(entry, Exception):
            raise entry
        return entry

    def close(self) -> None:
        self.closed += 1
        if self.fails:
            raise OSError(errno.EIO, "late")


def test_a_handle_is_what_it_was_opened_as(fs: WritableFs) -> None:
    handles = Handles(HandleBudget(9))
    assert handles.limit == 9
    memory, listing = Memory(), Listing(Memory())
    reading, writing = ConfinedFs.open_read(fs, [b"file"]), fs.open_write([b"file"], os.O_WRONLY, 0o600)
    names = [handles.add(one) for one in (memory, listing, reading, writing)]
    assert names == [number.to_bytes(8, "big") for number in range(4)]
    asked: list[tuple[Callable[[bytes], object], list[Handle]]] = [
        (handles.any, [memory, listing, reading, writing]),
        (handles.file, [memory, reading, writing]),
        (handles.real_file, [reading, writing]),
        (handles.writable, [writing]),
        (handles.listing, [listing]),
    ]
    for ask, able in asked:
        for name, one in zip(names, (memory, listing, reading, writing), strict=True):
            if one in able:
                assert ask(name) is one
            else:
                with pytest.raises(OSError, match=BAD):
                    ask(name)
        with pytest.raises(OSError, match=BAD):
            ask(b"none")
    handles.close_all()
    assert handles.add(Memory()) == (4).to_bytes(8, "big")


def test_room_is_counted_over_all_sessions_and_given_back() -> None:
    budget = HandleBudget(3)
    one, other = Handles(budget), Handles(budget)
    file, directory, last = Memory(fails=True), Memory(), Memory()
    names = []
    for handle in (file, Listing(directory)):
        one.make_room()
        names.append(one.add(handle))
    other.make_room()
    other.add(last)
    for handles in (one, other):
        with pytest.raises(OSError, match=FULL):
            handles.make_room()
    assert (budget.used, budget.listings) == (3, 1)
    one.close(names[1])
    assert (budget.used, budget.listings, directory.closed) == (2, 0, 1)
    other.make_room()
    with pytest.raises(OSError, match=BAD):
        one.close(names[1])
    one.add(Listing(Memory()))
    for _ in range(2):
        one.close_all()
        assert (budget.used, budget.listings, file.closed, last.closed) == (1, 0, 1, 0)
    other.close_all()
    assert (budget.used, last.closed) == (0, 1)


def test_directories_have_a_bound_of_their_own() -> None:
    handles = Handles(HandleBudget(MAX_LISTINGS + 2))
    assert MAX_LISTINGS == 128
    for _ in range(MAX_LISTINGS):
        handles.make_room(listing=True)
        handles.add(Listing(Memory()))
    with pytest.raises(OSError, match=FULL):
        handles.make_room(listing=True)
    handles.make_room()
    budget = HandleBudget(1)
    budget.used = 1
    with pytest.raises(OSError, match=FULL):
        Handles(budget).make_room(listing=True)


def entry(name: bytes) -> tuple[bytes, os.stat_result]:
    return name, os.stat_result((stat.S_IFREG, 0, 0, 1, 1, 2, 3, 4, 5, 6))


def pages(listing: Listing, limit: int) -> Iterator[tuple[list[bytes], int]]:
    """Return each page, and how often others had the loop meanwhile."""
    while True:
        steps, pauses = listing.next_entries(limit), 0
        while True:
            try:
                next(steps)
            except StopIteration as end:
                page: list[bytes] = end.value
                break
            pauses += 1
        yield page, pauses
        if not page:
            return


def test_pages_hold_every_entry_once_and_begin_with_the_directory_itself() -> None:
    names = [b"%060d" % number for number in range(200)]
    listing = Listing(Memory([entry(name) for name in names]))
    assert listing.stat() == Memory().stat()
    found = list(pages(listing, 2_000))
    own = [pack_entry(name, Memory().stat()) for name in (b".", b"..")]
    assert [one for page, _ in found for one in page] == own + [pack_entry(*entry(name)) for name in names]
    # an entry has 60 bytes of name and some more; the one that passes the limit is the last
    assert [len(page) for page, _ in found] == [2 + 21, *[21] * 8, 200 - 9 * 21, 0]
    assert list(pages(Listing(Memory()), 10)) == [(own, 0), ([], 0)]


@pytest.mark.parametrize(
    ("shown", "skipped", "pauses"), [(63, 0, 0), (64, 0, 1), (127, 0, 1), (128, 0, 2), (0, 3, 3), (62, 3, 4)]
)
def test_others_go_on_between_some_entries_and_where_none_is_shown(shown: int, skipped: int, pauses: int) -> None:
    entries: list[tuple[bytes, os.stat_result] | Exception | None] = [None] * skipped
    listing = Listing(Memory(entries + [entry(b"x")] * shown))
    page, paused = next(pages(listing, 1 << 20))
    assert (len(page), paused) == (2 + shown, pauses)


def test_what_is_not_known_yet_ends_a_page_or_is_asked_for() -> None:
    dropped: list[str] = []

    def unknown(name: str) -> NotKnownYet:
        return NotKnownYet(lambda: None, lambda: dropped.append(name))

    last = unknown("last")
    listing = Listing(Memory([entry(b"a"), unknown("first"), last, entry(b"b")]))
    steps = pages(listing, 1 << 20)
    page, _ = next(steps)
    assert (len(page), dropped) == (3, ["first"])
    with pytest.raises(NotKnownYet) as asked:
        next(steps)
    assert asked.value is last
    assert dropped == ["first"]
    assert next(pages(listing, 1 << 20)) == ([pack_entry(*entry(b"b"))], 0)
    held = Memory()
    Listing(held).close()
    assert held.closed == 1
