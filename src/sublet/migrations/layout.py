"""The files of the state directory besides databases: their common version, and how an older layout is brought to it.

The version stands in one file, ``state-version``. Files know no transaction, so a change goes on where a kill has
stopped it: the copies are whole before the file says that a change is under way, each step may run again over what it
has done already, and the new version is written last. Until then no daemon runs on the files.

Weak: a state directory of before this file had none; one that has a database and no such file is taken for
``Layout.unnamed``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sublet.disk.durable import sync_directory, write_durably
from sublet.disk.plain_file import read_plain
from sublet.disk.removal import remove_tree
from sublet.migrations import refusals

VERSION_FILE: Final = "state-version"
KEPT_COPIES: Final = 2
"""Directories with files of older layouts that are kept."""
_MAX_BYTES: Final = 4096
_WHAT: Final = "the state directory"


@dataclass(frozen=True, slots=True)
class LayoutStep:
    """One step from the layout before.

    Args:
        to: the layout that it leads to.
        what: what it changes, in a few words.
        touches: names below the state directory that it changes or removes; files, or directories with all below.
        change: makes the change below the state directory. It may be killed and is run again then.
    """

    to: int
    what: str
    touches: tuple[str, ...]
    change: Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of a state directory.

    Args:
        version: the layout of this program.
        steps: from the oldest layout that is taken up, in order.
        unnamed: the layout of a directory without a version file.
        present: a name that every directory has that was used before; without it, it is new.
    """

    version: int
    steps: tuple[LayoutStep, ...]
    unnamed: int
    present: str

    def __post_init__(self) -> None:
        found = [one.to for one in self.steps]
        if found != list(range(self.version - len(found) + 1, self.version + 1)):
            raise ValueError(f"the steps do not lead to layout {self.version} one by one: {found}")

    @property
    def oldest(self) -> int:
        """The oldest layout that can be brought to this one."""
        return self.version - len(self.steps)


@dataclass(frozen=True, slots=True)
class Written:
    """What the version file says: the layout, who wrote it, and the layout to which a killed change was leading."""

    layout: int
    by: str = ""
    moving_to: int | None = None


class LayoutFiles:
    """The layout of one state directory. Every method blocks on the disk.

    Args:
        directory: the state directory.
        layout: of this program.
        program: this program's version, which is written down.
    """

    def __init__(self, directory: Path, layout: Layout, program: str) -> None:
        self._directory = directory
        self._file = directory / VERSION_FILE
        self._layout = layout
        self._program = program

    def read(self) -> Written | None:
        """Return what is written down; None for a new directory.

        A file that can't be read tells nothing. All steps are run then, since each may run again over what it has done.
        """
        try:
            found = json.loads(read_plain(self._file, _MAX_BYTES, follow=False))
            moving = found.get("moving_to")
            return Written(int(found["layout"]), str(found["sublet"])[:80], None if moving is None else int(moving))
        except FileNotFoundError:
            there = (self._directory / self._layout.present).exists()
            return Written(self._layout.unnamed) if there else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return Written(self._layout.unnamed)

    def check(self) -> Written | None:
        """Return what is written down.

        Raises:
            SubletError: ``STATE_VERSION`` where it is a later layout, or an older one that can't be taken up.
        """
        found = self.read()
        if found is None:
            return None
        layout = max(found.layout, found.moving_to or 0)
        if layout > self._layout.version:
            raise refusals.newer(_WHAT, self._directory, layout, self._layout.version, found.by)
        if found.layout < self._layout.oldest:
            raise refusals.too_old(_WHAT, self._directory, found.layout, self._layout.oldest)
        return found

    def copy(self, found: Written) -> None:
        """Copy the files that the due steps touch into ``files.vLAYOUT``, durably, and say that a change is under way.

        Raises:
            SubletError: ``UNAVAILABLE`` where that is not possible; nothing has changed then.
        """
        if found.moving_to is not None or not self._due(found):
            return  # what is there now may be changed halfway; the copy was whole before that
        copy, draft = self._copy_of(found.layout), self._directory / "files.copy"
        names = sorted({name for step in self._due(found) for name in step.touches})
        try:
            remove_tree(draft)
            draft.mkdir(mode=0o700)
            for name in names:
                _copy(self._directory / name, draft / name)
            _sync_tree(draft)
            remove_tree(copy)
            draft.rename(copy)
            sync_directory(self._directory)
            self._write(Written(found.layout, found.by, self._layout.version))
        except OSError as error:
            with suppress(OSError):
                remove_tree(draft)
            why = error.strerror or str(error)
            raise refusals.not_copied(_WHAT, self._directory, why, 1 << 20) from None

    def migrate(self, found: Written | None) -> None:
        """Run the due steps over files that were copied, and write the layout of this program down.

        Raises:
            SubletError: ``UNAVAILABLE`` where that failed; the next start goes on with it.
        """
        due = self.due(found)
        now = Written(self._layout.version, self._program)
        if found == now:
            return
        try:
            for step in due:
                step.change(self._directory)
            self._write(now)
        except OSError as error:
            if not due and found is not None:
                return  # it says the right layout, and only who wrote it is not up to date
            why = error.strerror or str(error)
            raise refusals.not_changed(_WHAT, self._directory, why) from None
        with suppress(OSError):
            for old in self.copies()[:-KEPT_COPIES]:
                remove_tree(old)

    def due(self, found: Written | None) -> tuple[LayoutStep, ...]:
        """Return the steps that lead from what is written down to this program's layout."""
        return () if found is None else self._due(found)

    def copies(self) -> list[Path]:
        """Return the directories with files of older layouts, the oldest first."""
        found = [one for one in self._directory.glob("files.v*") if one.name[len("files.v") :].isdecimal()]
        return sorted(found, key=lambda one: int(one.name[len("files.v") :]))

    def _due(self, found: Written) -> tuple[LayoutStep, ...]:
        return self._layout.steps[found.layout - self._layout.oldest :]

    def _copy_of(self, layout: int) -> Path:
        return self._directory / f"files.v{layout}"

    def _write(self, now: Written) -> None:
        said: dict[str, object] = {"layout": now.layout, "sublet": now.by}
        if now.moving_to is not None:
            said["moving_to"] = now.moving_to
        write_durably(self._file, json.dumps(said).encode() + b"\n")


def _copy(source: Path, target: Path) -> None:
    """Copy a file, or a directory with all below it, as it is; nothing where it is missing. No link is followed."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target, follow_symlinks=False)


def _sync_tree(directory: Path) -> None:
    for root, _, files in os.walk(directory):
        for name in files:
            path = Path(root, name)
            if not path.is_symlink():
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        sync_directory(Path(root))
