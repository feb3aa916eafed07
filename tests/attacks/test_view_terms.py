"""D26: a hostile executor with raw SFTP in a lease whose terms forbid to delete, or that is writable in part only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attacks.kit.view_lease import Lease, served
from sublet.workspace.birth import Identity
from sublet.workspace.confined.changing import LOCKED, NOT_MADE, READ_ONLY
from sublet.workspace.own_names import MAX_BORN_BYTES, OwnNames
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.sftp_client import attributes, string

OK, NO_SUCH_FILE, DENIED, FAILURE = 0, 2, 3, 4
READ, WRITE, APPEND, CREAT, TRUNC, EXCL = 1, 2, 4, 8, 16, 32
FILES = {
    "a": "of the lender",
    "src/b": "of the lender, too",
    "src/deep/c": "deep",
    "out/d": "made before",
    "out/.envrc": "run by direnv",
    "docs/e.md": "text",
    "docs/e.txt": "other text",
    "empty/keep": "k",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "lent"
    for name, text in FILES.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    (place / "bare").mkdir()
    (place / "link").symlink_to("a")
    return place


def terms(*, writable: tuple[str, ...] = (), only_adds: bool = False) -> Rules:
    return Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], writable=writable, only_adds=only_adds)


def state(root: Path) -> dict[str, tuple[int, int, int, str | bytes]]:
    """Return inode, mode, modification time and content of everything, by its name."""
    found: dict[str, tuple[int, int, int, str | bytes]] = {}
    for top, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = Path(top, name)
            status = path.lstat()
            held = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            time = 0 if path.is_dir() else status.st_mtime_ns
            found[str(path.relative_to(root))] = status.st_ino, status.st_mode, time, held
    return found


@pytest.fixture
def adding(root: Path) -> Iterator[Lease]:
    with served(root, terms(only_adds=True)) as lease:
        yield lease


def replaced_by_own(lease: Lease, name: bytes, *, posix: bool) -> int:
    assert lease.put(b"mine", b"of the executor") == OK
    return lease.rename(b"mine", name, posix=posix)


GONE: dict[str, Callable[[Lease], int]] = {
    "remove": lambda lease: lease.remove(b"a"),
    "remove a link": lambda lease: lease.remove(b"link"),
    "rmdir": lambda lease: lease.ask(15, string(b"/workspace/bare")).status or 0,
    "rename away": lambda lease: lease.rename(b"a", b"elsewhere"),
    "posix-rename away": lambda lease: lease.rename(b"a", b"elsewhere", posix=True),
    "rename a directory": lambda lease: lease.rename(b"src", b"elsewhere"),
    "rename an empty directory": lambda lease: lease.rename(b"bare", b"elsewhere", posix=True),
    "rename over": lambda lease: replaced_by_own(lease, b"a", posix=True),
    "rename over a link": lambda lease: replaced_by_own(lease, b"link", posix=True),
    "rename over by the old request": lambda lease: replaced_by_own(lease, b"a", posix=False),
    "rename over, two of the lender's": lambda lease: lease.rename(b"a", b"src/b", posix=True),
    "rename to another case": lambda lease: lease.rename(b"a", b"A"),
}


@pytest.mark.parametrize("name", GONE)
def test_nothing_of_the_lender_is_removed_renamed_or_replaced(root: Path, adding: Lease, name: str) -> None:
    before = state(root)
    assert GONE[name](adding) in (DENIED, FAILURE, FAILURE + 7)
    after = state(root)
    assert {one: held for one, held in after.items() if one != "mine"} == before
    if "old request" not in name:
        assert any(NOT_MADE in line for line in adding.denied)


def test_a_directory_made_by_the_lease_does_not_replace_an_empty_one_of_the_lender(root: Path, adding: Lease) -> None:
    inode = (root / "bare").stat().st_ino
    assert adding.mkdir(b"mine") == OK
    assert adding.rename(b"mine", b"bare", posix=True) == DENIED
    assert (root / "bare").stat().st_ino == inode


def test_what_the_lease_made_is_its_own_whatever_it_is_called(root: Path, adding: Lease) -> None:
    assert adding.put(b"n", b"1") == OK
    assert adding.rename(b"n", b"m") == OK
    assert adding.put(b"o", b"2") == OK
    assert adding.rename(b"o", b"m", posix=True) == OK
    assert adding.mkdir(b"d") == OK
    assert adding.rename(b"m", b"d/m") == OK
    assert adding.rename(b"d", b"e") == OK
    assert adding.link(b"e/m", b"e/n") == OK
    assert adding.remove(b"e/m") == OK
    assert adding.remove(b"e/n") == OK
    assert adding.ask(15, string(b"/workspace/e")).status == OK
    assert adding.ask(20, string(b"a") + string(b"/workspace/l")).status == OK
    assert adding.remove(b"l") == OK
    assert adding.denied == []
    # contents of the lender's may be changed
    assert adding.put(b"a", b"OF") == OK
    assert (root / "a").read_text() == "OF the lender"


def test_a_second_name_gives_no_right_to_the_file(root: Path, adding: Lease) -> None:
    assert adding.link(b"a", b"b") == OK
    assert adding.rename(b"b", b"a", posix=True) in (OK, DENIED)  # two names of one file: rename(2) does nothing
    assert adding.remove(b"b") == DENIED
    assert adding.remove(b"a") == DENIED
    assert (root / "a").read_text() == FILES["a"]
    assert replaced_by_own(adding, b"b", posix=True) == DENIED


def test_what_the_lender_puts_in_the_place_of_what_the_lease_made_is_the_lenders(root: Path, adding: Lease) -> None:
    assert adding.put(b"n", b"1") == OK
    (root / "new").write_text("of the lender")
    os.replace(root / "new", root / "n")
    assert adding.remove(b"n") == DENIED
    assert adding.rename(b"n", b"elsewhere") == DENIED
    assert replaced_by_own(adding, b"n", posix=True) == DENIED
    assert adding.mkdir(b"d") == OK
    (root / "d/theirs").write_text("t")
    assert adding.remove(b"d/theirs") == DENIED
    assert adding.ask(15, string(b"/workspace/d")).status != OK
    (root / "d/theirs").unlink()
    assert adding.ask(15, string(b"/workspace/d")).status == OK


def test_a_copy_that_a_change_of_a_linked_file_makes_is_still_the_lenders(root: Path, adding: Lease) -> None:
    os.link(root / "a", root.parent / "outside")
    assert adding.put(b"a", b"OF") == OK
    assert (root.parent / "outside").read_text() == FILES["a"]
    assert adding.remove(b"a") == DENIED
    assert adding.rename(b"a", b"b", posix=True) == DENIED


def test_the_next_process_knows_what_the_lease_made_and_no_more(root: Path) -> None:
    memory = root.parent / "memory"
    with served(root, terms(only_adds=True), memory=memory) as lease:
        for name in (b"n", b"gone"):
            assert lease.put(name, b"1") == OK
        assert lease.remove(b"gone") == OK
    (root / "gone").write_text("of the lender")
    with served(root, terms(only_adds=True), memory=memory) as lease:
        assert lease.remove(b"a") == DENIED
        assert lease.remove(b"gone") == DENIED
        assert lease.remove(b"n") == OK


def test_what_is_remembered_is_bounded_and_beyond_it_nothing_is_removed(root: Path, adding: Lease) -> None:
    own: OwnNames = adding.usage.own["workspace"]
    own._born_bytes = MAX_BORN_BYTES
    assert adding.put(b"n", b"1") == OK
    assert adding.remove(b"n") == DENIED


WRITABLE = ("out", "docs/*.md", "**/tmp", "new/place")


@pytest.fixture
def partly(root: Path) -> Iterator[Lease]:
    with served(root, terms(writable=WRITABLE)) as lease:
        yield lease


def set_by_path(lease: Lease, name: bytes, attrs: bytes, kind: int = 9) -> int:
    return lease.ask(kind, string(b"/workspace/" + name) + attrs).status or 0


OUTSIDE: dict[str, Callable[[Lease], int]] = {
    "write": lambda lease: lease.put(b"a", b"X", WRITE),
    "append": lambda lease: lease.put(b"src/b", b"X", WRITE | APPEND),
    "truncate on open": lambda lease: lease.open_status(b"src/b", WRITE | TRUNC),
    "make": lambda lease: lease.put(b"src/new", b"X"),
    "make exclusively": lambda lease: lease.open_status(b"new", WRITE | CREAT | EXCL),
    "make what is hidden": lambda lease: lease.put(b"src/new.pem", b"X"),
    "mkdir": lambda lease: lease.mkdir(b"src/more"),
    "remove": lambda lease: lease.remove(b"src/b"),
    "rmdir": lambda lease: lease.ask(15, string(b"/workspace/bare")).status or 0,
    "symlink": lambda lease: lease.ask(20, string(b"a") + string(b"/workspace/l")).status or 0,
    "size": lambda lease: set_by_path(lease, b"a", attributes(size=1)),
    "mode": lambda lease: set_by_path(lease, b"a", attributes(mode=0o777)),
    "mode of a directory": lambda lease: set_by_path(lease, b"src", attributes(mode=0o700)),
    "times": lambda lease: set_by_path(lease, b"src/b", attributes(times=(1, 1))),
    "mode by a link": lambda lease: set_by_path(lease, b"link", attributes(mode=0o777)),
    "mode by a handle": lambda lease: lease.by_handle(b"a", READ, attributes(mode=0o777)),
    "size by a handle": lambda lease: lease.by_handle(b"a", READ, attributes(size=1)),
    "times by a handle": lambda lease: lease.by_handle(b"a", READ, attributes(times=(1, 1))),
    "times of a link itself": lambda lease: (
        lease.extended(b"lsetstat@openssh.com", string(b"/workspace/link") + attributes(times=(1, 1))).status or 0
    ),
    "rename in": lambda lease: lease.rename(b"src/b", b"out/b"),
    "rename out": lambda lease: lease.rename(b"out/d", b"src/d"),
    "rename over": lambda lease: lease.rename(b"out/d", b"src/b", posix=True),
    "rename a directory in": lambda lease: lease.rename(b"src/deep", b"out/deep"),
    "rename the writable directory away": lambda lease: lease.rename(b"out", b"src/out2"),
    "link in": lambda lease: lease.link(b"src/b", b"out/b"),
    "link out": lambda lease: lease.link(b"out/d", b"src/d"),
    "another case": lambda lease: lease.put(b"OUT", b"X"),
    "another case below": lambda lease: lease.mkdir(b"Out"),
    "a name that begins like it": lambda lease: lease.put(b"output", b"X"),
    "by dots": lambda lease: lease.put(b"out/../src/b", b"X", WRITE),
    "another name of the glob's directory": lambda lease: lease.put(b"docs/e.txt", b"X", WRITE),
    "above a place that is not there": lambda lease: lease.put(b"new", b"X"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_the_rest_is_read_only(root: Path, partly: Lease, name: str) -> None:
    before = state(root)
    assert OUTSIDE[name](partly) != OK
    assert state(root) == before
    if "handle" not in name:
        assert any(READ_ONLY in line for line in partly.denied)


def test_what_is_writable_can_be_changed_and_made(root: Path, partly: Lease) -> None:
    assert partly.put(b"out/d", b"X") == OK
    assert partly.put(b"out/new", b"X") == OK
    assert partly.mkdir(b"out/dir") == OK
    assert partly.rename(b"out/new", b"out/dir/new") == OK
    assert partly.rename(b"out/dir", b"out/other") == OK
    assert partly.put(b"docs/e.md", b"X") == OK
    assert partly.put(b"docs/new.md", b"X") == OK
    assert partly.rename(b"out/other/new", b"docs/n.md") == OK
    assert partly.mkdir(b"src/deep/tmp") == OK
    assert partly.put(b"src/deep/tmp/x", b"X") == OK
    assert partly.rename(b"src/deep/tmp", b"out/tmp2") == OK
    assert partly.remove(b"out/d") == OK
    assert partly.denied == []
    assert partly.put(b"out/.envrc", b"X", WRITE) == DENIED
    assert any(LOCKED in line for line in partly.denied)
    (root / "new").mkdir()
    assert partly.put(b"new/place", b"X") == OK


def test_a_link_in_a_writable_directory_leads_to_no_write_elsewhere(root: Path, partly: Lease) -> None:
    before = state(root)
    assert partly.ask(20, string(b"../src/b") + string(b"/workspace/out/to")).status == OK
    assert partly.put(b"out/to", b"X", WRITE) != OK
    assert set_by_path(partly, b"out/to", attributes(mode=0o777)) != OK
    assert set_by_path(partly, b"out/to", attributes(size=1)) != OK
    assert partly.ask(20, string(b"../src") + string(b"/workspace/out/dir")).status == OK
    assert partly.put(b"out/dir/b", b"X", WRITE) != OK
    assert partly.put(b"out/dir/new", b"X") != OK
    after = state(root)
    assert {name: held for name, held in after.items() if name not in ("out/to", "out/dir")} == before


def test_a_writable_directory_that_is_swapped_for_a_link_leads_nowhere(root: Path) -> None:
    with served(root, terms(writable=("w",))) as lease:
        assert lease.mkdir(b"w") == OK
        handle = lease.handle(b"w/f", WRITE | CREAT)
        assert lease.remove(b"w/f") == OK
        assert lease.ask(15, string(b"/workspace/w")).status == OK
        before = state(root)
        assert lease.ask(20, string(b"src") + string(b"/workspace/w")).status == OK
        assert lease.write_at(handle, b"X", 0) in (OK, DENIED, FAILURE)
        assert lease.put(b"w/b", b"X", WRITE) != OK
        assert lease.put(b"w/new", b"X") != OK
    after = state(root)
    assert {name: held for name, held in after.items() if name != "w"} == before


@pytest.mark.parametrize("where", ["src/twin", ".envrc"])
def test_a_file_that_has_a_read_only_name_as_well_is_copied_before_it_is_changed(root: Path, where: str) -> None:
    os.link(root / "out/d", root / where)
    with served(root, terms(writable=WRITABLE)) as lease:
        assert lease.put(b"out/d", b"MINE") == OK
        assert set_by_path(lease, b"out/d", attributes(mode=0o700)) == OK
    assert (root / where).read_text() == FILES["out/d"]
    assert (root / "out/d").read_text().startswith("MINE")
    assert (root / where).stat().st_mode & 0o777 != 0o700


def test_both_terms_hold_at_once(root: Path) -> None:
    with served(root, terms(writable=("out",), only_adds=True)) as lease:
        assert lease.remove(b"out/d") == DENIED
        assert lease.put(b"out/d", b"X") == OK
        assert lease.put(b"out/n", b"X") == OK
        assert lease.put(b"n", b"X") == DENIED
        assert lease.remove(b"out/n") == OK
        assert [line.partition(": ")[2] for line in lease.denied] == [NOT_MADE, READ_ONLY]


def test_what_is_removed_is_the_leases_no_more_where_no_birth_is_told() -> None:
    """Some file systems do not tell when a file was made, and give its inode to the next one."""
    own = OwnNames()
    own.born(Identity(1, 2, 0))
    assert own.bore(Identity(1, 2, 0))
    own.dead(Identity(1, 2, 0))
    assert not own.bore(Identity(1, 2, 0))
    own.dead(None)
