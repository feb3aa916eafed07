"""What a rename may not do by the names alone: bring names under other rules, or make a link leave."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sublet.workspace.confined.move import check_move
from support.sftp_client import PathRules


class ByFirst(PathRules):
    """Names below ``only`` are directories only, and no link may be below ``barred``."""

    def directory_only(self, parts: Sequence[bytes]) -> bool:
        return parts[0] == b"only"

    def bars_links(self, parts: Sequence[bytes]) -> bool:
        return parts[0] == b"barred"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "inside").symlink_to("other")
    (tmp_path / "up").symlink_to("../other")
    (tmp_path / "far").symlink_to("../../other")
    (tmp_path / "leaves").symlink_to("/etc")
    fd = os.open(tmp_path, os.O_RDONLY)
    yield tmp_path, fd
    os.close(fd)


@pytest.mark.parametrize(
    ("name", "old", "new", "code"),
    [
        ("directory", "a/", "b/x/", None),
        ("directory", "only/", "only/x/", None),
        ("directory", "barred/", "barred/x/", None),
        ("directory", "only/", "a/", errno.EXDEV),
        ("directory", "a/", "only/", errno.EXDEV),
        ("directory", "a/", "barred/", errno.EXDEV),
        ("directory", "barred/", "a/", errno.EXDEV),
        ("file", "a/", "b/", None),
        ("file", "a/", "", None),
        ("file", "a/", "barred/", None),
        ("file", "barred/", "a/", None),
        ("file", "only/", "a/", errno.EACCES),
        ("file", "a/", "only/", errno.EACCES),
        ("inside", "a/", "barred/", errno.EACCES),
        ("inside", "barred/", "a/", None),
        ("inside", "a/b/", "", None),
        ("up", "a/", "b/", None),
        ("up", "a/", "b/c/", None),
        ("up", "a/", "", errno.EACCES),
        ("up", "a/b/", "a/", None),
        ("far", "a/b/", "a/", errno.EACCES),
        ("far", "a/b/c/", "a/b/", None),
        ("far", "a/b/c/", "a/", errno.EACCES),
        ("far", "a/", "", None),
        ("leaves", "a/", "", None),
    ],
)
def test_what_may_be_moved_where(place: tuple[Path, int], name: str, old: str, new: str, code: int | None) -> None:
    """A link that leads out already may be moved: it is not followed, and it was the lender's."""
    root, directory = place

    def parts(above: str) -> list[bytes]:
        return [*above.encode().split(b"/")[:-1], name.encode()]

    def check() -> None:
        check_move(ByFirst(), directory, (root / name).lstat(), parts(old), parts(new))

    if code is None:
        check()
        return
    with pytest.raises(OSError, match=os.strerror(code)):
        check()
