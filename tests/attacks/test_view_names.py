"""A hostile executor on files with two names, and on names of the lender's that would travel with a directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attacks.kit.view_lease import Lease, served
from sublet.workspace.confined import held
from sublet.workspace.confined.copy_up import QUICK_BYTES
from sublet.workspace.serving.served_lease import MAX_DENIED
from sublet.workspace.view.admission import AdmissionLimits, scan
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.leases import tree
from support.noise import noise
from support.sftp_client import attributes, string
from support.views import default_rules

OK, NO_SUCH_FILE, DENIED, FAILURE = 0, 2, 3, 4
READ, WRITE, APPEND, CREAT, TRUNC, EXCL = 1, 2, 4, 8, 16, 32


@pytest.fixture
def area(tmp_path: Path) -> Path:
    for name, text in {
        "store/lib": "store",
        "lent/own": "own",
        "lent/prod/.env": "PROD=1",
        "lent/prod/app": "p",
        "lent/staging/.env": "STAGING=1",
        "lent/staging/app": "s",
        "lent/deep/a/b/.claude/settings.json": "{}",
        "lent/deep/f": "f",
        "lent/repo/.git/config": "[core]\n",
        "lent/plain/x": "x",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "store/lib").chmod(0o644)
    os.link(tmp_path / "store/lib", tmp_path / "lent/lib")
    return tmp_path


@pytest.fixture(params=["at once", "in a thread"])
def lease(area: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lease]:
    if request.param == "in a thread":
        monkeypatch.setattr(held, "QUICK_ENTRIES", 0)
    with served(area / "lent", default_rules()) as lease:
        yield lease


CHANGES: dict[str, Callable[[Lease], object]] = {
    "write": lambda lease: lease.put(b"lib", b"X"),
    "append": lambda lease: lease.put(b"lib", b"X", flags=WRITE | APPEND),
    "truncate on open": lambda lease: lease.close(lease.handle(b"lib", WRITE | TRUNC)),
    "size by path": lambda lease: lease.ask(9, string(b"/workspace/lib") + attributes(size=1)),
    "mode by path": lambda lease: lease.ask(9, string(b"/workspace/lib") + attributes(mode=0o777)),
    "mode by link path": lambda lease: lease.extended(
        b"lsetstat@openssh.com", string(b"/workspace/lib") + attributes(mode=0o777)
    ),
    "times by path": lambda lease: lease.ask(9, string(b"/workspace/lib") + attributes(times=(1, 1))),
    "mode by a handle for reading": lambda lease: lease.by_handle(b"lib", READ, attributes(mode=0o777)),
    "times by a handle for reading": lambda lease: lease.by_handle(b"lib", READ, attributes(times=(1, 1))),
    "size by handle": lambda lease: lease.by_handle(b"lib", READ | WRITE, attributes(size=2)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_file_that_is_linked_from_outside_is_copied_before_it_is_changed(area: Path, lease: Lease, name: str) -> None:
    before = (area / "store/lib").stat()
    CHANGES[name](lease)
    after = (area / "store/lib").stat()
    assert (area / "store/lib").read_text() == "store"
    assert (after.st_mode, after.st_mtime_ns, after.st_size) == (before.st_mode, before.st_mtime_ns, before.st_size)
    assert after.st_nlink == 1
    mine = (area / "lent/lib").stat()
    assert mine.st_ino != after.st_ino
    changed = mine.st_mode != before.st_mode or mine.st_mtime_ns != before.st_mtime_ns
    assert changed
    assert not list((area / "lent").glob(".sublet-*"))


def test_all_open_handles_of_the_lease_go_on_with_the_copy(area: Path, lease: Lease) -> None:
    reading, writing = lease.handle(b"lib", READ), lease.handle(b"lib", READ | WRITE)
    lease.write_at(writing, b"Z", 0)
    assert lease.data(reading) == b"Ztore"
    lease.write_at(writing, b"!", 5)
    assert lease.data(reading) == b"Ztore!"
    assert (area / "lent/lib").read_text() == "Ztore!"
    assert (area / "store/lib").read_text() == "store"


def test_a_copy_counts_as_what_the_lease_adds(area: Path) -> None:
    with served(area / "lent", default_rules(), max_bytes=3) as lease:
        assert lease.ask(9, string(b"/workspace/lib") + attributes(mode=0o777)).status == FAILURE + 11
    assert stat.S_IMODE((area / "store/lib").stat().st_mode) == 0o644
    with served(area / "lent", default_rules(), max_bytes=5) as lease:
        assert lease.ask(9, string(b"/workspace/lib") + attributes(mode=0o777)).status == OK
        assert lease.usage.quota.bytes == 5


def test_renaming_and_removing_need_no_copy(area: Path, lease: Lease) -> None:
    inode = (area / "store/lib").stat().st_ino
    assert lease.rename(b"lib", b"moved") == OK
    assert (area / "lent/moved").stat().st_ino == inode
    assert lease.remove(b"moved") == OK
    assert (area / "store/lib").read_text() == "store"


def test_names_that_are_all_shown_stay_one_file(area: Path, lease: Lease) -> None:
    os.link(area / "lent/own", area / "lent/plain/own2")
    lease.put(b"plain/own2", b"W")
    assert (area / "lent/own").read_text() == "Wwn"
    assert lease.link(b"own", b"own3") == OK
    lease.put(b"own3", b"V")
    assert (area / "lent/own").read_text() == "Vwn"


def test_a_handle_whose_name_is_gone_does_not_reach_the_name_outside(area: Path, lease: Lease) -> None:
    handle = lease.handle(b"lib", READ | WRITE)
    assert lease.remove(b"lib") == OK
    assert lease.write_at(handle, b"stolen", 0) != OK
    assert (area / "store/lib").read_text() == "store"


def test_a_name_that_the_lender_gives_outside_later_is_safe_from_an_open_handle(area: Path, lease: Lease) -> None:
    handle = lease.handle(b"own", READ | WRITE)
    assert lease.write_at(handle, b"O", 0) == OK
    os.link(area / "lent/own", area / "store/snapshot")
    assert lease.write_at(handle, b"N", 1) == OK
    assert (area / "store/snapshot").read_text() == "Own"
    assert (area / "lent/own").read_text() == "ONn"


def test_a_large_file_is_copied_off_the_loop(area: Path, lease: Lease) -> None:
    content = noise(QUICK_BYTES + 1)
    (area / "store/big").write_bytes(content)
    os.link(area / "store/big", area / "lent/big")
    lease.put(b"big", b"!")
    assert lease.waited
    assert (area / "lent/big").read_bytes() == b"!" + content[1:]
    assert (area / "store/big").read_bytes() == content


def test_a_symbolic_link_with_a_name_outside_keeps_its_times_there(area: Path, lease: Lease) -> None:
    (area / "store/l").symlink_to("lib")
    os.link(area / "store/l", area / "lent/l", follow_symlinks=False)
    before = (area / "store/l").lstat().st_mtime_ns
    body = string(b"/workspace/l") + attributes(times=(1, 1))
    assert lease.extended(b"lsetstat@openssh.com", body).status == OK
    assert (area / "store/l").lstat().st_mtime_ns == before
    assert (area / "lent/l").lstat().st_mtime == 1


# names that packages carry


def test_what_packages_carry_gets_no_place_where_agents_obey_it(area: Path, lease: Lease) -> None:
    assert lease.put(b"plain/AGENTS.md", b"obey") == DENIED
    for made in (b"node_modules", b"node_modules/p", b"node_modules/q"):
        assert lease.mkdir(made) == OK
    assert lease.put(b"node_modules/p/AGENTS.md", b"obey") == OK
    assert lease.rename(b"node_modules/p", b"node_modules/r") == OK
    for taken in (b"node_modules/r/AGENTS.md", b"node_modules/r", b"node_modules"):
        new = b"plain/AGENTS.md" if taken.endswith(b".md") else b"plain/moved"
        assert lease.rename(taken, new) != OK
        assert lease.rename(taken, new, posix=True) != OK
    assert lease.link(b"node_modules/r/AGENTS.md", b"plain/AGENTS.md") == DENIED
    assert lease.ask(20, string(b"../node_modules/r/AGENTS.md") + string(b"/workspace/plain/AGENTS.md")).status != OK
    assert lease.rename(b"node_modules/q", b"plain/q") != OK
    assert not list((area / "lent" / "plain").rglob("AGENTS.md"))
    assert lease.rename(b"node_modules/q", b"node_modules/r/node_modules") == OK


# names that share a hidden file


def shares(area: Path) -> None:
    os.link(area / "lent/prod/.env", area / "lent/plain/shown")


@pytest.mark.parametrize("later", [False, True])
def test_a_name_of_a_hidden_file_is_hidden(area: Path, lease: Lease, later: bool) -> None:
    if later:
        assert lease.names(b"plain") == [b"x"]
        lease.content(b"own")
    shares(area)
    before = tree(area)
    assert lease.names(b"plain") == [b"x"]
    for kind in (7, 17):
        assert lease.ask(kind, string(b"/workspace/plain/shown")).status == NO_SUCH_FILE
    assert lease.open_status(b"plain/shown", READ) == NO_SUCH_FILE
    for flags in (WRITE, READ | WRITE, WRITE | CREAT, WRITE | CREAT | TRUNC, WRITE | CREAT | EXCL):
        assert lease.open_status(b"plain/shown", flags) in (NO_SUCH_FILE, DENIED, FAILURE)
    assert lease.rename(b"plain/shown", b"taken") == NO_SUCH_FILE
    assert lease.rename(b"own", b"plain/shown") == DENIED
    assert lease.remove(b"plain/shown") == NO_SUCH_FILE
    assert lease.link(b"plain/shown", b"taken") == NO_SUCH_FILE
    assert lease.rename(b"plain", b"elsewhere") == DENIED
    assert lease.ask(9, string(b"/workspace/plain/shown") + attributes(mode=0o777)).status == NO_SUCH_FILE
    assert tree(area) == before


def test_a_handle_shows_nothing_once_its_file_is_a_hidden_one(area: Path, lease: Lease) -> None:
    handle = lease.handle(b"own", READ)
    os.link(area / "lent/own", area / "lent/prod/.env.local")
    (area / "lent/prod/.env.local").write_text("SECRET")
    assert lease.data(handle) == b""


def test_nobody_gives_a_hidden_name_a_second_one(area: Path, lease: Lease) -> None:
    assert lease.link(b"own", b"plain/new.pem") == DENIED
    assert lease.link(b"prod/.env", b"taken") == DENIED
    assert lease.put(b"mine.pem", b"k") == OK
    assert lease.link(b"mine.pem", b"taken") == DENIED
    assert not (area / "lent/taken").exists()


def test_the_scan_lists_names_of_hidden_files_as_hidden(area: Path) -> None:
    shares(area)
    admitted = scan(area / "lent", default_rules(), AdmissionLimits())
    assert "plain/shown" in admitted.hidden
    excluded = scan(area / "lent", Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], exclude=["prod"]), AdmissionLimits())
    assert "plain/shown" in excluded.hidden


# what travels


def test_hidden_files_are_not_exchanged_by_moving_what_holds_them(area: Path, lease: Lease) -> None:
    before = tree(area)
    assert lease.rename(b"prod", b"t") == DENIED
    assert lease.rename(b"staging", b"prod") != OK
    assert lease.rename(b"t", b"staging") == NO_SUCH_FILE
    assert tree(area) == before
    assert any(line.startswith("prod: the directory holds names") for line in lease.denied)


@pytest.mark.parametrize("directory", [b"deep", b"deep/a", b"deep/a/b", b"repo"])
@pytest.mark.parametrize("posix", [False, True])
def test_nothing_that_holds_hidden_or_locked_names_is_moved(
    area: Path, lease: Lease, directory: bytes, posix: bool
) -> None:
    before = tree(area)
    assert lease.rename(directory, b"plain/taken", posix=posix) == DENIED
    assert lease.rename(directory, b"taken", posix=posix) == DENIED
    (area / "lent/empty").mkdir()
    assert lease.rename(b"empty", directory, posix=posix) != OK
    assert lease.ask(15, string(b"/workspace/" + directory)).status != OK
    assert tree(area) == before


def test_a_directory_moves_until_something_of_the_lenders_comes_to_be_in_it(area: Path, lease: Lease) -> None:
    (area / "lent/plain/sub").mkdir()
    for _ in range(3):
        assert lease.rename(b"plain", b"other") == OK
        assert lease.rename(b"other", b"plain") == OK
    status = (area / "lent/plain/sub").stat()
    (area / "lent/plain/sub/.env").write_text("NEW=1")
    # and a client that sets the time back hides nothing by that
    body = string(b"/workspace/plain/sub") + attributes(times=(int(status.st_atime), int(status.st_mtime)))
    assert lease.ask(9, body).status == OK
    assert lease.rename(b"plain", b"other") == DENIED


def test_names_of_other_letters_are_the_same_names(lease: Lease) -> None:
    for name in (b".ENVRC", b".Claude", b".VSCODE", b".git", b".GIT", "\uff0eenvrc".encode(), b".g\xe2\x80\x8cit"):
        assert lease.open_status(name, WRITE | CREAT) == DENIED, name
        assert lease.mkdir(name) == DENIED, name


# what a lease makes itself


def test_what_a_lease_makes_where_nothing_was_is_its_own(area: Path, lease: Lease) -> None:
    for directory in (b".venv", b".venv/certs", b".venv/.aws"):
        assert lease.mkdir(directory) == OK
    assert lease.put(b".venv/certs/cacert.pem", b"CA") == OK
    assert lease.put(b".venv/.aws/config", b"c") == OK
    assert lease.names(b".venv") == [b".aws", b"certs"]
    assert lease.names(b".venv/certs") == [b"cacert.pem"]
    assert lease.rename(b".venv", b"venv") == OK
    assert lease.content(b"venv/certs/cacert.pem") == b"CA"
    assert lease.content(b"venv/.aws/config") == b"c"
    assert lease.rename(b"venv/certs/cacert.pem", b"venv/plain") == OK
    assert lease.rename(b"venv/plain", b"venv/again.key") == OK
    assert lease.content(b"venv/again.key") == b"CA"
    assert sorted(lease.own()) == [b"venv/.aws", b"venv/.aws/config", b"venv/again.key"]
    assert lease.remove(b"venv/again.key") == OK
    assert sorted(lease.own()) == [b"venv/.aws", b"venv/.aws/config"]


def test_what_the_lender_puts_there_is_the_lenders(area: Path, lease: Lease) -> None:
    assert lease.put(b"mine.pem", b"m") == OK
    assert lease.mkdir(b".aws") == OK
    (area / "lent/mine.pem").unlink()
    (area / "lent/mine.pem").write_text("of the lender")
    (area / "lent/.aws/credentials").write_text("of the lender")
    before = tree(area)
    assert lease.open_status(b"mine.pem", READ) == NO_SUCH_FILE
    for flags in (WRITE, WRITE | CREAT, WRITE | CREAT | TRUNC, WRITE | CREAT | EXCL):
        assert lease.open_status(b"mine.pem", flags) in (DENIED, NO_SUCH_FILE)
    assert lease.remove(b"mine.pem") == NO_SUCH_FILE
    assert lease.rename(b"own", b"mine.pem", posix=True) == DENIED
    assert lease.names(b".aws") == []
    assert lease.rename(b".aws", b"taken") != OK
    assert lease.open_status(b".aws/credentials", READ) == NO_SUCH_FILE
    assert lease.open_status(b"prod/.env", WRITE | CREAT) == DENIED
    assert tree(area) == before


def test_nothing_is_made_in_a_hidden_directory_of_the_lenders(area: Path, lease: Lease) -> None:
    (area / "lent/.ssh").mkdir()
    assert lease.open_status(b".ssh/authorized_keys", WRITE | CREAT) == DENIED
    assert lease.mkdir(b".ssh/x") == DENIED
    assert lease.rename(b"own", b".ssh/own") == DENIED
    assert lease.ask(20, string(b"x") + string(b"/workspace/.ssh/l")).status == DENIED
    assert list((area / "lent/.ssh").iterdir()) == []


def test_a_directory_is_never_renamed_to_a_hidden_name(area: Path, lease: Lease) -> None:
    (area / "lent/free").mkdir()
    (area / "lent/free/f").write_text("visible")
    assert lease.rename(b"free", b".aws") != OK
    assert (area / "lent/free/f").exists()


def test_the_next_process_knows_what_is_the_leases_own(area: Path, tmp_path: Path) -> None:
    with served(area / "lent", default_rules(), memory=tmp_path / "memory") as lease:
        lease.mkdir(b"d")
        assert lease.put(b"d/mine.pem", b"m") == OK
        assert lease.put(b"gone.pem", b"m") == OK
        assert lease.rename(b"d", b"e") == OK
        assert lease.remove(b"gone.pem") == OK
    (area / "lent/gone.pem").write_text("of the lender")
    with served(area / "lent", default_rules(), memory=tmp_path / "memory") as lease:
        assert lease.content(b"e/mine.pem") == b"m"
        assert lease.rename(b"e", b"f") == OK
        assert lease.open_status(b"gone.pem", READ) == NO_SUCH_FILE
    with served(area / "lent", default_rules()) as lease:  # the next lease
        assert lease.open_status(b"f/mine.pem", READ) == NO_SUCH_FILE
        assert lease.rename(b"f", b"g") == DENIED


def test_what_was_refused_is_still_told_after_a_restart(area: Path, tmp_path: Path) -> None:
    root, memory = area / "lent", tmp_path / "memory"
    with served(root, default_rules(), memory=memory) as lease:
        assert lease.put(b".envrc", b"EVIL") == DENIED
        assert lease.mkdir(b"x") == OK
        first, count = list(lease.denied), lease.usage.denied_count
        assert len(first) == 1
    with served(root, default_rules(), memory=memory) as lease:
        assert (lease.denied, lease.usage.denied_count) == (first, count)
        assert lease.put(b".envrc", b"EVIL") == DENIED
        assert lease.denied == first, "told once"
        for number in range(MAX_DENIED + 20):
            assert lease.put(b"%d/.envrc" % number, b"EVIL") in (DENIED, NO_SUCH_FILE)
        for number in range(MAX_DENIED + 20):
            lease.mkdir(b"%d" % number)
            assert lease.put(b"%d/.envrc" % number, b"EVIL") == DENIED
        assert len(lease.denied) == MAX_DENIED
        told, count = list(lease.denied), lease.usage.denied_count
        assert count > MAX_DENIED
    with served(root, default_rules(), memory=memory) as lease:
        assert (lease.denied, lease.usage.denied_count) == (told, count)
