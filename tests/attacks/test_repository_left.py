"""Locks and drafts that an executor's git leaves in the lender's repository when its lease ends (``--git rw``)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from attacks.test_repository_rw import RULES, git, give, one_commit, parts_of
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.left_drafts import MAX_TOLD, remove_drafts
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.own_names import OwnNames
from sublet.workspace.quota import Quota

LEFT = [
    "index.lock",
    "HEAD.lock",
    "packed-refs.lock",
    "packed-refs.new",
    "ORIG_HEAD.lock",
    "refs/heads/main.lock",
    "refs/heads/x.lock",
    "logs/HEAD.lock",
    "next-index-12.lock",
    "index.stash.12",
    "objects/tmp_obj_abc",
]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return one_commit(tmp_path / "lent")


@pytest.fixture
def own() -> OwnNames:
    return OwnNames()


@pytest.fixture
def served(repository: Path, own: OwnNames) -> WritableFs:
    root = ConfinedFs.open_root(repository)
    return WritableFs(root, RULES, Quota(1 << 20, 1000), lambda _: None, own=own)


def make(served: WritableFs, name: str) -> None:
    served.open_write(parts_of(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644).close()


def test_what_the_executors_git_left_is_removed_so_that_the_lenders_works(
    served: WritableFs, own: OwnNames, repository: Path
) -> None:
    for name in LEFT:
        make(served, name)
    served.mkdir(parts_of("objects/tmp_objdir-incoming-x"), 0o700)
    served.mkdir(parts_of("objects/tmp_objdir-incoming-x/11"), 0o700)
    make(served, "objects/tmp_objdir-incoming-x/11/" + "1" * 38)
    served.close()
    assert remove_drafts(repository, own) == []
    assert [name for name in (*LEFT, "objects/tmp_objdir-incoming-x") if (repository / ".git" / name).exists()] == []
    (repository / "a").write_text("b")
    git(repository, "commit", "-qam", "second")
    git(repository, "pack-refs", "--all")
    git(repository, "reflog", "expire", "--all")
    git(repository, "gc", "-q")
    assert remove_drafts(repository, own) == []


@pytest.mark.parametrize("how", ["link", "rename"])
def test_a_lock_made_of_another_file_is_the_executors_as_well(
    served: WritableFs, own: OwnNames, repository: Path, how: str
) -> None:
    make(served, "COMMIT_EDITMSG.lock")
    served.rename(parts_of("COMMIT_EDITMSG.lock"), parts_of("MERGE_MSG"), replace=True)
    if how == "link":
        served.link(parts_of("MERGE_MSG"), parts_of("index.lock"))
    else:
        served.rename(parts_of("MERGE_MSG"), parts_of("index.lock"), replace=True)
    served.close()
    assert remove_drafts(repository, own) == []
    assert not (repository / ".git/index.lock").exists()
    assert (repository / ".git/MERGE_MSG").exists() == (how == "link")


def test_what_is_the_lenders_or_has_its_name_stays(served: WritableFs, own: OwnNames, repository: Path) -> None:
    """A branch may be called ``x.new``; a lock that another has put in the place of the executor's is not its own."""
    head = git(repository, "rev-parse", "HEAD").encode()
    give(served, "refs/heads/x.new", head + b"\n")
    file = served.open_write(parts_of("logs/refs/heads/x.new"), os.O_WRONLY | os.O_CREAT, 0o644)
    file.write(b"log", 0)
    file.close()
    make(served, "index.lock")
    served.close()
    lock = repository / ".git" / "index.lock"
    lock.unlink()
    lock.write_text("of the lender's git")
    (repository / ".git" / "HEAD.lock").write_text("of the lender's git")
    assert remove_drafts(repository, own) == []
    assert lock.read_text() == "of the lender's git"
    assert (repository / ".git" / "HEAD.lock").exists()
    assert git(repository, "rev-parse", "x.new").encode() == head
    assert (repository / ".git" / "logs/refs/heads/x.new").read_text() == "log"


def test_what_can_not_be_removed_is_told_within_bounds(served: WritableFs, own: OwnNames, repository: Path) -> None:
    served.mkdir(parts_of("objects/tmp_objdir-incoming-\x1b[2J"), 0o700)
    for number in range(MAX_TOLD + 10):
        served.mkdir(parts_of(f"objects/tmp_{number}"), 0o700)
    served.close()
    (repository / ".git/objects/tmp_objdir-incoming-\x1b[2J/of the lender").touch()
    [line] = remove_drafts(repository, own)
    assert "it could not be removed (Directory not empty)" in line
    assert "\x1b" not in line
    gone = repository.with_name("gone")
    for number in range(MAX_TOLD + 10):
        own.made(parts_of(f"objects/tmp_{number}"), own.at(parts_of("objects/tmp_objdir-incoming-\x1b[2J")))  # type: ignore[arg-type]
    assert len(remove_drafts(gone, own)) == MAX_TOLD + 1


@pytest.mark.parametrize("name", ["index.lock", "refs/heads/main.lock", "logs/HEAD.lock", "packed-refs.new"])
def test_a_lock_is_no_directory_which_could_hold_something(served: WritableFs, repository: Path, name: str) -> None:
    served.mkdir(parts_of("refs/heads/d"), 0o755)
    with pytest.raises(PermissionError):
        served.mkdir(parts_of(name), 0o755)
    with pytest.raises(OSError, match=r"denied|device"):
        served.rename(parts_of("refs/heads/d"), parts_of(name), replace=False)
    assert not (repository / ".git" / name).exists()


@pytest.mark.parametrize("branch", ["work.new", "next-index-x"])
def test_a_branch_of_the_lenders_that_is_called_like_a_draft_is_worked_on(
    repository: Path, own: OwnNames, branch: str
) -> None:
    git(repository, "switch", "-qc", branch)
    served = WritableFs(ConfinedFs.open_root(repository), RULES, Quota(1 << 20, 100), lambda _: None, own=own)
    give(served, f"refs/heads/{branch}", git(repository, "rev-parse", "HEAD").encode())
    file = served.open_write(parts_of(f"logs/refs/heads/{branch}"), os.O_WRONLY | os.O_APPEND, 0o644)
    file.write(b"x", 0)
    file.close()
