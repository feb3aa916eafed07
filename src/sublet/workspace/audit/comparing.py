"""What differs between two manifests: files, links, directories and permissions, and who changed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Literal

from sublet.protocol.text import clean_name
from sublet.workspace.audit.manifest import ROOT, Manifest, Record, file_of, knows_directories
from sublet.workspace.audit.path_tree import PathTree, differing
from sublet.workspace.audit.shadow_git import SYMLINK

Change = Literal["added", "changed", "deleted", "mode"]
DirectoryKind = Literal["added", "deleted", "mode"]
By = Literal["executor", "other"]
Author = Callable[[bytes], By]

_EXECUTE: Final = 0o100


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One changed file or link. ``lines_*`` are None for what is not text, or was not counted within bounds.

    ``by`` is ``executor`` where the lease's own write log has the file or a directory above it. ``mode_*`` are its
    permissions; None where there was no file, and where they are not known.
    """

    path: bytes
    change: Change
    by: By
    lines_added: int | None = None
    lines_deleted: int | None = None
    mode_before: int | None = None
    mode_after: int | None = None

    @property
    def shown(self) -> str:
        """The path in a form that is safe to show."""
        return clean_name(self.path)


@dataclass(frozen=True, slots=True)
class ChangedDirectory:
    """One directory that was made, removed, or got other permissions (``mode``)."""

    path: bytes
    change: DirectoryKind
    by: By
    mode_before: int | None = None
    mode_after: int | None = None

    @property
    def shown(self) -> str:
        """The path in a form that is safe to show, with a slash at its end."""
        return clean_name(self.path) + "/"


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs, sorted by path."""

    files: list[ChangedFile]
    directories: list[ChangedDirectory]


def changes(before: Manifest, after: Manifest, author: Author) -> Iterator[ChangedFile | ChangedDirectory]:
    """Yield what differs between two manifests, sorted by path: an executor decides how much that is.

    What a manifest of the first version does not say, directories and permissions, is not compared.
    """
    with_directories = knows_directories(before) and knows_directories(after)
    for path, old, new in differing(PathTree.of(before), PathTree.of(after)):
        if (change := _file_change(file_of(old), file_of(new))) is not None:
            modes = (_permissions(file_of(old)), _permissions(file_of(new)))
            yield ChangedFile(path, change, author(path), None, None, *modes)
        if with_directories and path != ROOT and (kind := _directory_change(old, new)) is not None:
            modes = (_permissions(_directory_of(old)), _permissions(_directory_of(new)))
            yield ChangedDirectory(path, kind, author(path), *modes)


def compare(before: Manifest, after: Manifest, author: Author, most: int | None = None) -> Difference:
    """Return what differs between two manifests, as ``changes`` does, and nothing after the first ``most``."""
    found = Difference([], [])
    for change in islice(changes(before, after, author), most):
        if isinstance(change, ChangedFile):
            found.files.append(change)
        else:
            found.directories.append(change)
    return found


def with_lines(changed: ChangedFile, lines: tuple[int, int] | None) -> ChangedFile:
    """Return ``changed`` with its line counts."""
    return changed if lines is None else replace(changed, lines_added=lines[0], lines_deleted=lines[1])


def patch_of(before: Manifest, after: Manifest, below: str = "", *, limit: int) -> bytes:
    """Return the part of a patch that git has no words for: directories, and permissions beside the executable bit.

    ``git apply`` takes these lines for a comment. No line begins after ``limit`` bytes.
    """
    lead = f"{below}/" if below else ""
    before, after = PathTree.of(before), PathTree.of(after)
    pieces: list[bytes] = []
    size = 0
    for line in _patch_lines(before, after, lead):
        pieces.append(line.encode() + b"\n")
        size += len(pieces[-1])
        if size > limit:
            break
    return b"".join(pieces)


def _patch_lines(before: Manifest, after: Manifest, lead: str) -> Iterator[str]:
    for directory in changes(before, after, lambda _: "executor"):
        if isinstance(directory, ChangedDirectory):
            yield from _lines_of_directory(directory, lead)
    for file in changes(before, after, lambda _: "executor"):
        if isinstance(file, ChangedFile):
            yield from _lines_of_file(file, lead)


def _lines_of_directory(directory: ChangedDirectory, lead: str) -> Iterator[str]:
    yield f"diff --directory {lead}{directory.shown}"
    if directory.mode_before is None:
        yield f"new directory mode {shown_mode(directory.mode_after)}"
    elif directory.mode_after is None:
        yield f"deleted directory mode {shown_mode(directory.mode_before)}"
    else:
        yield f"old mode {shown_mode(directory.mode_before)}"
        yield f"new mode {shown_mode(directory.mode_after)}"


def _lines_of_file(file: ChangedFile, lead: str) -> Iterator[str]:
    before, after = file.mode_before, file.mode_after
    if before is None or after is None or not (before ^ after) & ~_EXECUTE:
        return
    if file.change == "mode" and before & _EXECUTE != after & _EXECUTE and _usual(before) and _usual(after):
        return  # exactly what git says
    yield f"diff --mode {lead}{file.shown}"
    yield f"old mode {shown_mode(before)}"
    yield f"new mode {shown_mode(after)}"


def shown_mode(permissions: int | None) -> str:
    """Return permissions as ``chmod`` takes them; "unknown" for None."""
    return "unknown" if permissions is None else f"{permissions:04o}"


def _usual(permissions: int) -> bool:
    return permissions in (0o644, 0o755)


def _permissions(record: Record | None) -> int | None:
    return None if record is None else record.permissions


def _file_change(old: Record | None, new: Record | None) -> Change | None:
    if old is None or new is None:
        return None if old is new else "added" if old is None else "deleted"
    if old.blob != new.blob or (old.mode == SYMLINK) != (new.mode == SYMLINK):
        return "changed"
    if old.mode != new.mode:
        return "mode"
    known = old.permissions is not None and new.permissions is not None
    return "mode" if known and old.permissions != new.permissions else None


def _directory_of(record: Record | None) -> Record | None:
    return record if record is not None and record.is_directory else None


def _directory_change(old: Record | None, new: Record | None) -> DirectoryKind | None:
    before, after = _directory_of(old), _directory_of(new)
    if before is None or after is None:
        return None if before is after else "added" if before is None else "deleted"
    return "mode" if before.permissions != after.permissions else None
