"""An index of somebody else's making: what git would write where it may not, and what it would believe unseen."""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.git import index as git_index
from sublet.workspace.git.index import checked_index
from sublet.workspace.quota import Quota
from sublet.workspace.view.rules import DEFAULT_CARRIED, DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules

SHA1, SHA256 = 20, 32
RULES = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], carried=DEFAULT_CARRIED, git="rw")


def git(root: Path, *arguments: str) -> str:
    """Run git in ``root`` and return what it prints."""
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    done = subprocess.run(["git", *who, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout


def index(paths: Sequence[bytes], extensions: bytes = b"", *, blob: str = "1" * 40, length: int | None = None) -> bytes:
    """Return an index with ``paths``, all of which hold ``blob``."""
    content = b"DIRC" + struct.pack(">II", 2, len(paths))
    for path in sorted(paths):
        flags = len(path) if length is None else length
        entry = struct.pack(">10I", 0, 0, 0, 0, 0, 0, 0o100755, 0, 0, 0) + bytes.fromhex(blob)
        entry += struct.pack(">H", flags) + path
        content += entry + b"\0" * (8 - len(entry) % 8)
    content += extensions
    return content + hashlib.sha1(content, usedforsecurity=False).digest()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    (root / "a").write_text("a\n")
    (root / "sub" / "b").write_text("b\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    return root


@pytest.fixture
def marked() -> list[bytes]:
    """The files that an index had git not look at."""
    return []


@pytest.fixture
def served(repository: Path, marked: list[bytes]) -> WritableFs:
    root = ConfinedFs.open_root(repository)
    return WritableFs(root, RULES, Quota(1 << 20, 100), lambda _: None, on_marks=marked.extend)


def give(served: WritableFs, content: bytes) -> None:
    """Put an index in place as git does."""
    file = served.open_write([b".git", b"index.lock"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    file.write(content, 0)
    try:
        served.rename([b".git", b"index.lock"], [b".git", b"index"], replace=True)
        file.write(b"EVIL", 0)  # reaches nothing any more
    finally:
        file.close()


@pytest.mark.parametrize(
    "path",
    [
        b".git/hooks/pre-commit",
        b"sub/.GIT/config",
        b"../outside",
        b"sub/../../outside",
        b"/etc/x",
        b"./a",
        b"a//b",
        b"a/",
        b"GIT~1/config",
        b".git /config",
        b".git::$INDEX_ALLOCATION/config",
        b".g\xe2\x80\x8cit/config",
        b"..",
        b"sub\\.git\\config",
    ],
)
def test_paths_that_git_would_not_add_are_refused(path: bytes) -> None:
    with pytest.raises(PermissionError):
        checked_index(index([b"a", path]), SHA1)


def test_ordinary_paths_are_taken() -> None:
    paths = [b"a", b".gitignore", b".github/x", b"x.git/y", b"...", b"\xff\n\xfe", b"git~2/x", b"x" * 300]
    content = index(paths)
    good = checked_index(content, SHA1)
    assert (good.content, good.cleared) == (content, ())


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize(("form", "size"), [("sha1", SHA1), ("sha256", SHA256)])
def test_what_git_writes_is_taken_and_means_the_same(tmp_path: Path, version: str, form: str, size: int) -> None:
    git(tmp_path, "init", "-q", f"--object-format={form}")
    for number in range(40):
        (tmp_path / f"dir{number % 3}" / ("n" * number)).mkdir(parents=True)
        (tmp_path / f"dir{number % 3}" / ("n" * number) / "file").write_text(str(number))
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    git(tmp_path, "update-index", "--index-version", version)
    if version == "3":
        git(tmp_path, "update-index", "--skip-worktree", "dir0/file")
    file = tmp_path / ".git" / "index"
    before = file.read_bytes()
    listed = git(tmp_path, "ls-files", "-s", "-v")
    after = checked_index(before, size, before).content
    assert b"TREE" in before
    assert b"TREE" not in after
    file.write_bytes(after)
    assert git(tmp_path, "ls-files", "-s", "-v") == listed
    assert git(tmp_path, "status", "--porcelain") == ""
    assert git(tmp_path, "fsck") == ""


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("mark", ["--assume-unchanged", "--skip-worktree"])
def test_an_index_from_the_lease_hides_no_change(
    repository: Path, served: WritableFs, marked: list[bytes], version: str, mark: str
) -> None:
    file = repository / ".git" / "index"
    git(repository, "update-index", "--index-version", version)
    git(repository, "update-index", mark, "a")
    (repository / "a").write_text("changed\n")
    assert git(repository, "status", "--porcelain") == "", "git itself believes it"
    given = file.read_bytes()
    git(repository, "update-index", f"--no-{mark[2:]}", "a")
    give(served, given)
    assert git(repository, "status", "--porcelain") == " M a\n"
    assert git(repository, "ls-files", "-v").splitlines() == ["H a", "H sub/b"]
    assert marked == [b"a"]


def test_the_marks_that_the_lender_has_set_stay(repository: Path, served: WritableFs, marked: list[bytes]) -> None:
    git(repository, "update-index", "--skip-worktree", "sub/b")
    git(repository, "update-index", "--assume-unchanged", "a")
    (repository / "sub" / "b").unlink()
    give(served, (repository / ".git" / "index").read_bytes())
    assert git(repository, "ls-files", "-v").splitlines() == ["h a", "S sub/b"]
    assert git(repository, "status", "--porcelain") == ""
    assert marked == []


def test_what_is_to_be_added_is_taken_for_changed_anyway(
    repository: Path, served: WritableFs, marked: list[bytes]
) -> None:
    (repository / "new").write_text("")
    git(repository, "add", "-N", "new")
    give(served, (repository / ".git" / "index").read_bytes())
    assert git(repository, "status", "--porcelain") == " A new\n"
    assert marked == []


def test_marks_that_git_does_not_know_are_refused(repository: Path) -> None:
    git(repository, "update-index", "--index-version", "3", "--skip-worktree", "a")
    content = (repository / ".git" / "index").read_bytes()
    at = content.index(b"a\0") - 2
    assert content[at : at + 2] == b"\x40\0"
    with pytest.raises(PermissionError):
        checked_index(content[:at] + b"\x50\0" + content[at + 2 :], SHA1)


def test_an_index_that_is_split_is_refused_since_it_is_not_all(repository: Path) -> None:
    git(repository, "update-index", "--split-index")
    (repository / "a").write_text("changed\n")
    git(repository, "add", "a")
    with pytest.raises(PermissionError):
        checked_index((repository / ".git" / "index").read_bytes(), SHA1)


@pytest.mark.parametrize("change", ["none", "replace", "delete", "add", "all"])
def test_the_lenders_own_split_index_is_read_whole(repository: Path, change: str) -> None:
    for number in range(150):  # more than one word of the bitmaps
        (repository / f"f{number:03}").write_text(f"{number}")
    git(repository, "add", "-A")
    git(repository, "update-index", "--split-index")
    git(repository, "config", "splitIndex.maxPercentChange", "100")
    if change in ("replace", "all"):
        for name in ("f007", "f070", "f149"):
            (repository / name).write_text("changed")
            git(repository, "add", name)
    if change in ("delete", "all"):
        git(repository, "rm", "-q", "--cached", "f003", "f064", "f065")
    if change in ("add", "all"):
        (repository / "later").write_text("l")
        git(repository, "add", "later")
    content = (repository / ".git" / "index").read_bytes()
    assert b"link" in content
    read = git_index.known_entries(
        content, SHA1, lambda name: (repository / ".git" / f"sharedindex.{name}").read_bytes()
    )
    listed = [line.split(maxsplit=3) for line in git(repository, "ls-files", "-s").splitlines()]
    wanted = {(path.encode(), int(mode, 8).to_bytes(4, "big") + bytes.fromhex(blob)) for mode, blob, _, path in listed}
    assert {(entry.path, entry.blob) for entry in read} == wanted
    assert len(read) == len(listed)


@pytest.mark.parametrize("bitmaps", [b"x", b"\0" * 11, b"\0\0\0\1\0\0\0\xff" + bytes(12)])
def test_bitmaps_that_no_git_writes_are_read_as_nothing(bitmaps: bytes) -> None:
    raw = index([b"a"])[:-SHA1] + b"link" + struct.pack(">I", SHA1 + len(bitmaps)) + bytes(SHA1) + bitmaps + bytes(SHA1)
    assert git_index.known_entries(raw, SHA1, lambda _: index([b"b"])) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"DIRC",
        b"x" * 100,
        index([b"a"])[:-21],
        index([b"a"], b"link"),
        index([b"a"], b"UNTR" + struct.pack(">I", 1000)),
        index([b"a"], length=2),
        index([b""]),
        index([b"x" * 5000], length=0xFFF),
        b"DIRC" + struct.pack(">II", 2, 0xFFFFFFFF) + bytes(40),
        b"DIRC" + struct.pack(">II", 9, 0) + bytes(20),
        b"DIRC" + struct.pack(">II", 4, 1) + bytes(60) + struct.pack(">H", 1) + b"\x81a\0" + bytes(20),
    ],
)
def test_what_is_no_index_is_refused(content: bytes) -> None:
    with pytest.raises(PermissionError):
        checked_index(content, SHA1)


def test_paths_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_index, "MAX_ALL_PATHS_BYTES", 100)
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        checked_index(index([b"a" * 60, b"b" * 60]), SHA1)


def test_a_hostile_index_never_takes_its_place(served: WritableFs, repository: Path) -> None:
    file = repository / ".git" / "index"
    before = file.read_bytes()
    with pytest.raises(PermissionError):
        give(served, index([b".git/hooks/post-checkout"]))
    served.remove([b".git", b"index.lock"])
    assert file.read_bytes() == before
    name = [b".git", b"index"]
    for attempt in (
        lambda: served.open_write(name, os.O_WRONLY, 0),
        lambda: served.open_write(name, os.O_WRONLY | os.O_CREAT, 0o644),
        lambda: served.set_attributes(name, size=0),
        lambda: served.link(name, [b".git", b"ORIG_HEAD"]),
        lambda: served.rename([b"sub"], name, replace=True),
        lambda: served.rename([b"a"], name, replace=False),
        lambda: served.open_write([b".git", b"sharedindex.1"], os.O_WRONLY | os.O_CREAT, 0o644),
    ):
        with pytest.raises(OSError, match=r"denied|exists|cross-device"):
            attempt()
    assert file.read_bytes() == before


def test_a_good_index_takes_its_place_as_a_file_of_our_own(served: WritableFs, repository: Path) -> None:
    file = repository / ".git" / "index"
    blob = git(repository, "rev-parse", "HEAD:a").strip()
    give(served, index([b"a", b"new"], b"TREE" + struct.pack(">I", 4) + b"evil", blob=blob))
    assert file.read_bytes() == index([b"a", b"new"], blob=blob)
    assert not (repository / ".git" / "index.lock").exists()
    assert git(repository, "diff", "--cached", "--name-status").split() == ["M", "a", "A", "new", "D", "sub/b"]
    assert [path.name for path in (repository / ".git").glob("*index*")] == ["index"]
