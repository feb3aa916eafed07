"""What is kept of what a live lease overwrites, what is not, and what is said of it."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.protocol.errors import SubletError
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.file_copy import FICLONE
from sublet.workspace.kept import budget, keeper
from sublet.workspace.kept.budget import KeptBudget
from sublet.workspace.kept.keeper import OverwriteKeeper
from sublet.workspace.kept.log import load, open_place
from support.kept import LiveLease, picture, settled, tick
from support.noise import noise

LARGE = 5 << 20
"""More than a snapshot keeps of a file."""


def states(lease: LiveLease) -> list[tuple[bytes, str, bool]]:
    """Return what is kept, or noted as lost: the name, whose it was, and whether it is lost."""
    return [(state.path, state.by, state.lost) for state in load(lease.kept).states]


def lend(state: Path, root: Path, budget: KeptBudget | None = None, *, patient: bool = True) -> LiveLease:
    settled(root)
    return LiveLease(state, root, budget=budget, patient=patient)


def test_what_the_snapshot_holds_is_not_copied(state: Path, root: Path) -> None:
    (root / "f").write_text("before\n")
    lease = lend(state, root)
    lease.write("f", b"theirs\n")
    lease.write("f", b"again\n")
    assert states(lease) == []
    assert lease.end().others == ()


def test_what_the_lease_wrote_itself_is_not_copied(state: Path, root: Path) -> None:
    lease = lend(state, root)
    lease.write("f", b"one\n")
    tick(state)
    lease.write("f", b"two\n")
    lease.fs.rename((b"f",), (b"g",), replace=True)
    tick(state)
    lease.write("g", b"three\n")
    lease.fs.link((b"g",), (b"h",))
    lease.fs.remove((b"h",))
    lease.write("g", b"four\n")
    lease.fs.remove((b"g",))
    assert states(lease) == []


@pytest.mark.parametrize("operation", ["rewrite", "patch", "cut", "remove", "replace", "chmod", "touch"])
def test_an_edit_of_somebody_else_is_kept_before_anything_is_done_to_it(
    state: Path, root: Path, operation: str
) -> None:
    (root / "f").write_text("before\n")
    lease = lend(state, root)
    lease.write("other", b"x")
    tick(state)
    (root / "f").write_text("of a person\n")
    match operation:
        case "rewrite":
            lease.write("f", b"theirs")
        case "patch":
            lease.write("f", b"theirs", flags=os.O_WRONLY)
        case "cut":
            lease.fs.set_attributes((b"f",), size=2)
        case "remove":
            lease.fs.remove((b"f",))
        case "replace":
            lease.fs.rename((b"other",), (b"f",), replace=True)
        case "chmod":
            lease.fs.set_attributes((b"f",), mode=0o600)
        case _:
            lease.fs.set_attributes((b"f",), times=(1, 1))
    assert states(lease) == [(b"f", "other", False)]
    [(path, kept)] = lease.end().others
    assert path == b"f"
    assert kept is not None
    assert kept.read_text() == "of a person\n"


@pytest.mark.parametrize("change", ["write", "truncate"])
def test_who_is_killed_in_the_midst_of_a_change_lays_it_at_nobody_elses_door(
    state: Path, root: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    def killed(*_: object) -> None:
        raise SystemExit

    lease = lend(state, root)
    lease.write("f", b"whole\n")
    tick(state)
    file = lease.fs.open_write((b"f",), os.O_WRONLY, 0)
    with monkeypatch.context() as patched:
        patched.setattr(OverwriteKeeper, "wrote", killed)
        with pytest.raises(SystemExit):
            file.write(b"changed\n", 0) if change == "write" else file.truncate(2)
    lease.open()
    lease.write("f", b"once more\n")
    assert states(lease) == [(b"f", "unsure", False)]
    assert lease.end().others == ()


def test_an_edit_between_two_writes_of_one_handle_is_kept(state: Path, root: Path) -> None:
    (root / "f").write_text("before\n" * 10)
    lease = lend(state, root)
    file = lease.fs.open_write((b"f",), os.O_WRONLY, 0)
    file.write(b"theirs", 0)
    tick(state)
    with (root / "f").open("a") as mine:
        mine.write("mine\n")
    file.write(b"more", 10)
    file.close()
    [(_, kept)] = lease.end().others
    assert kept is not None
    assert kept.read_bytes() == b"theirs\n" + b"before\n" * 9 + b"mine\n"


def test_a_directory_that_a_person_moves_in_is_not_in_the_snapshot(state: Path, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("older than the lease\n")
    lease = lend(state, root)
    outside.rename(root / "in")
    lease.write("in/f", b"theirs\n")
    [(path, kept)] = lease.end().others
    assert path == b"in/f"
    assert kept is not None
    assert kept.read_text() == "older than the lease\n"


def test_a_file_too_large_for_the_snapshot_is_kept_and_restored(state: Path, root: Path) -> None:
    (root / "large").write_bytes(noise(LARGE))
    (root / "moved").write_bytes(noise(LARGE))
    before = picture(root)
    lease = lend(state, root)
    lease.write("large", b"theirs", flags=os.O_WRONLY)
    lease.fs.rename((b"moved",), (b"elsewhere",), replace=True)
    assert states(lease) == [(b"large", "first", False)]
    account = lease.end()
    assert (account.others, account.lost) == ((), ())
    assert lease.take_back().conflicts == ()
    assert picture(root) == before


def test_a_large_file_that_was_moved_and_then_written_is_restored_where_it_was(state: Path, root: Path) -> None:
    (root / "d").mkdir()
    (root / "d/large").write_bytes(noise(LARGE))
    before = picture(root)
    lease = lend(state, root)
    lease.fs.rename((b"d", b"large"), (b"large",), replace=True)
    lease.open()  # what is known of it outlives the process
    lease.write("large", b"theirs")
    assert states(lease) == [(b"d/large", "first", False)]
    lease.end()
    assert lease.take_back().conflicts == ()
    assert picture(root) == before


def test_a_large_file_is_copied_where_nobody_waits(state: Path, root: Path) -> None:
    (root / "large").write_bytes(b"l" * LARGE)
    lease = lend(state, root, patient=False)
    with pytest.raises(NotKnownYet) as unknown:
        lease.write("large", b"theirs", flags=os.O_WRONLY)
    assert (root / "large").read_bytes() == b"l" * LARGE
    unknown.value.learn()
    lease.write("large", b"theirs", flags=os.O_WRONLY)
    assert states(lease) == [(b"large", "first", False)]


def test_a_copy_that_nobody_waits_for_any_more_is_dropped(state: Path, root: Path) -> None:
    (root / "large").write_bytes(b"l" * LARGE)
    before = len(os.listdir("/proc/self/fd"))
    lease = lend(state, root, patient=False)
    for ending in ("drop", "closed"):
        with pytest.raises(NotKnownYet) as unknown:
            lease.write("large", b"theirs", flags=os.O_WRONLY)
        if ending == "drop":
            unknown.value.drop()
        else:
            lease.fs.close()
            unknown.value.learn()
    assert len(os.listdir("/proc/self/fd")) == before
    assert not (lease.kept / "0").exists()


def test_beyond_the_bound_writing_goes_on_and_it_is_told(state: Path, root: Path) -> None:
    for name in ("a", "b", "c"):
        (root / name).write_text("before\n")
    lease = lend(state, root, KeptBudget(limit=15))
    for name in ("a", "b", "c"):
        tick(state)
        (root / name).write_text("mine 7\n")
        lease.write(name, b"theirs\n")
    assert [lost for _, _, lost in states(lease)] == [False, False, True]
    account = lease.end()
    assert account.lost == (b"c",)
    assert [kept is None for _, kept in account.others] == [False, False, True]
    report = lease.take_back()
    assert [conflict.path for conflict in report.conflicts] == [b"c"]
    assert "could not be kept" in report.conflicts[0].detail
    assert (root / "a").read_text() == "mine 7\n"
    assert (root / "c").read_text() == "theirs\n"


def test_a_lease_that_must_keep_all_changes_nothing_that_it_can_not_keep(state: Path, root: Path) -> None:
    (root / "f").write_text("before\n")
    lease = lend(state, root, KeptBudget(limit=3, must_keep=True))
    tick(state)
    (root / "f").write_text("of a person\n")
    with pytest.raises(OSError, match="quota") as refused:
        lease.write("f", b"theirs")
    assert refused.value.errno == errno.EDQUOT
    with pytest.raises(OSError, match="quota"):
        lease.fs.remove((b"f",))
    assert (root / "f").read_text() == "of a person\n"
    assert lease.refused
    assert "must keep" in lease.refused[0]


def test_an_executor_can_not_fill_the_disk_with_its_own_writing(
    state: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are forgotten for their number may be kept once more, but within the bound and as nobody's edits."""
    monkeypatch.setattr(keeper, "MAX_KNOWN", 8)
    lease = lend(state, root, KeptBudget(limit=2_000))
    for _ in range(5):
        tick(state)
        for number in range(40):
            lease.write(f"f{number}", b"x" * 50)
    kept = sum(path.stat().st_size for path in lease.kept.iterdir() if path.name.isdecimal())
    assert kept <= 2_000
    assert len(lease.keeper._known) <= 8
    account = lease.end()
    assert account.others == ()
    lease.take_back()
    assert list(root.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a disk of 2 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", place], check=False).returncode
    ):
        pytest.skip("needs root to mount a disk of its own")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_on_a_full_disk_writing_goes_on_and_it_is_told(
    small_disk: Path, root: Path, monkeypatch: pytest.MonkeyPatch, state: Path
) -> None:
    monkeypatch.setattr(budget, "MIN_FREE_BYTES", 0)
    (root / "f").write_text("before\n")
    state = small_disk
    lease = lend(state, root)
    tick(state)
    (root / "f").write_bytes(noise(900_000))
    with (state / "filler").open("wb") as filler:
        filler.write(b"x" * 1_200_000)
    lease.write("f", b"theirs\n")
    (state / "filler").unlink()
    assert (root / "f").read_bytes() == b"theirs\n"
    assert lease.end().lost == (b"f",)
    assert [path for path in lease.kept.iterdir() if path.name.isdecimal()] == []


def test_what_a_killed_process_left_open_is_unsure_and_no_edit_of_somebody(state: Path, root: Path) -> None:
    lease = lend(state, root)
    lease.write("done", b"done\n")
    file = lease.fs.open_write((b"f",), os.O_WRONLY | os.O_CREAT, 0o644)
    file.write(b"half", 0)
    tick(state)
    lease.open()  # the first process was killed
    lease.write("f", b"whole\n")
    tick(state)
    (root / "done").write_text("mine\n")
    lease.write("done", b"theirs\n")
    assert states(lease) == [(b"f", "unsure", False), (b"done", "other", False)]
    lease.end()
    lease.take_back()
    assert sorted(path.name for path in root.iterdir()) == ["done"]
    assert (root / "done").read_text() == "mine\n"


def test_a_torn_list_is_gone_on_with(state: Path, root: Path) -> None:
    (root / "f").write_text("before\n")
    lease = lend(state, root)
    with (lease.kept / "log").open("ab") as log:
        log.write(b'S {"path": "f", "by"')
    lease.open()
    tick(state)
    (root / "f").write_text("mine\n")
    lease.write("f", b"theirs\n")
    assert states(lease) == [(b"f", "other", False)]


def test_names_of_any_bytes_are_kept(state: Path, root: Path) -> None:
    name = b'caf\xe9 "\n\\'
    lease = lend(state, root)
    with open(os.path.join(bytes(root), name), "wb") as file:
        file.write(b"mine\n")
    lease.fs.remove((name,))
    lease.end()
    lease.take_back()
    assert os.listdir(bytes(root)) == [name]


def test_links_and_directories_of_a_person_come_back(state: Path, root: Path) -> None:
    lease = lend(state, root)
    (root / "empty").mkdir(0o750)
    os.symlink("nowhere", root / "link")
    lease.fs.rmdir((b"empty",))
    lease.fs.remove((b"link",))
    lease.end()
    lease.take_back()
    assert os.readlink(root / "link") == "nowhere"
    assert (root / "empty").stat().st_mode & 0o777 == 0o750


def test_a_copy_shares_its_blocks_where_the_file_system_can(state: Path, root: Path, tmp_path: Path) -> None:
    probe = tmp_path / "probe"
    probe.write_bytes(b"x" * 8192)
    with probe.open("rb") as source, (tmp_path / "clone").open("wb") as target:
        try:
            fcntl.ioctl(target, FICLONE, source.fileno())
        except OSError:
            pytest.skip("this file system shares no blocks")
    (root / "large").write_bytes(noise(LARGE))
    lease = lend(state, root)
    lease.write("large", b"theirs", flags=os.O_WRONLY)
    assert states(lease) == [(b"large", "first", False)]


def test_a_directory_that_can_not_be_read_is_an_error_with_a_reason(state: Path, root: Path) -> None:
    lease = lend(state, root)
    place = open_place(lease.kept)
    (lease.kept / "log").unlink()
    with pytest.raises(SubletError, match="can't be opened"):
        OverwriteKeeper(place, lease.rules, KeptBudget())
