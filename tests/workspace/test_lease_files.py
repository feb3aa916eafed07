"""Single operations on the files of a mounted lease: confined, bounded, and never in the way of the loop."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import anyio
import pytest

from sublet.workspace import lease_files
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.lease_files import MountedFiles

pytestmark = pytest.mark.anyio


@pytest.fixture
def top(tmp_path: Path) -> Path:
    directory = tmp_path / "workspace"
    directory.mkdir()
    return directory


async def test_it_reads_writes_lists_searches_moves_and_deletes(top: Path) -> None:
    files = MountedFiles({"workspace": (top, "rw")})
    assert await files.write(("workspace", "a", "b.txt"), b"one\ntwo\n") is True
    assert await files.write(("workspace", "a", "b.txt"), b"one\n") is False
    part = await files.read(("workspace", "a", "b.txt"), 1, 2)
    assert (part.data, part.size) == (b"ne", 4)
    listing = await files.list(("workspace", "a"), 10)
    assert [(entry.name, entry.kind, entry.size) for entry in listing.entries] == [("b.txt", "file", 4)]
    found = await files.search((), "one", "*.txt", 10, ignore_case=False)
    assert [(match.path, match.line, match.text) for match in found.found] == [(("workspace", "a", "b.txt"), 1, "one")]
    await files.move(("workspace", "a", "b.txt"), ("workspace", "c.txt"))
    await files.delete(("workspace", "a"))
    await files.delete(("workspace", "c.txt"))
    assert list(top.iterdir()) == []
    await files.aclose()
    with pytest.raises(OSError, match="descriptor"):
        await files.read(("workspace", "c.txt"), 0, 1)


async def test_a_search_ends_at_its_bound_and_says_so(top: Path) -> None:
    for number in range(5):
        (top / f"{number}.txt").write_text("x\n")
    files = MountedFiles({"workspace": (top, "ro")})
    found = await files.search(("workspace",), "x", "*", 3, ignore_case=False)
    assert (len(found.found), found.more) == (3, True)
    listing = await files.list(("workspace",), 2)
    assert (len(listing.entries), listing.more) == (2, True)
    await files.aclose()


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ((), errno.ENOENT),
        (("other", "x"), errno.ENOENT),
        (("workspace", "..", "x"), errno.EINVAL),
        (("workspace", "a/b"), errno.EINVAL),
        (("workspace", "link"), errno.ELOOP),
        (("workspace", "out", "x"), errno.ELOOP),
        (("workspace", "fifo"), errno.EACCES),
        (("workspace",), errno.EISDIR),
    ],
)
async def test_what_is_no_file_of_the_lease_is_not_opened(top: Path, path: tuple[str, ...], code: int) -> None:
    (top.parent / "x").write_text("outside")
    (top / "link").symlink_to("../x")
    (top / "out").symlink_to("..")
    os.mkfifo(top / "fifo")
    files = MountedFiles({"workspace": (top, "rw")})
    for action in (files.read(path, 0, 1), files.write(path, b"changed")):
        with pytest.raises(OSError, match=r".") as caught:
            await action
        assert caught.value.errno in (code, errno.ENOTDIR, errno.EINVAL, errno.EISDIR)
    assert (top.parent / "x").read_text() == "outside"
    await files.aclose()


async def test_what_may_only_be_read_is_not_changed(top: Path) -> None:
    (top / "x").write_text("x")
    files = MountedFiles({"workspace": (top, "ro"), "lib": (top, "rw")})
    for action in (
        files.write(("workspace", "x"), b"y"),
        files.delete(("workspace", "x")),
        files.move(("workspace", "x"), ("lib", "y")),
    ):
        with pytest.raises(OSError, match="Read-only") as caught:
            await action
        assert caught.value.errno == errno.EROFS
    with pytest.raises(OSError, match="cross-device") as moved:
        await MountedFiles({"a": (top, "rw"), "b": (top, "rw")}).move(("a", "x"), ("b", "y"))
    assert moved.value.errno == errno.EXDEV
    await files.aclose()


async def test_a_mount_that_does_not_answer_never_blocks_the_loop(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead mount is imitated by a lock: what waits for it is bounded, told, and lets go when it comes back."""
    gone, stuck = threading.Event(), []
    real = ConfinedFs.open_root

    def wait(path: Path) -> int:
        stuck.append(path)
        gone.wait(30)
        return real(path)

    monkeypatch.setattr(ConfinedFs, "open_root", staticmethod(wait))
    files = MountedFiles({"workspace": (top, "rw")}, seconds=0.1)
    try:

        async def ask() -> None:
            with pytest.raises(TimeoutError):
                await files.read(("workspace", "x"), 0, 1)

        for _ in range(3):  # those that nobody waits for any more keep their places
            async with anyio.create_task_group() as group:
                for _ in range(6):
                    group.start_soon(ask)
        assert len(stuck) == lease_files.MAX_THREADS
        await files.aclose()
    finally:
        gone.set()
