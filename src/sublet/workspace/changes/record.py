"""A change set as it is kept in the state directory: what each path was, what it became, and where its content lies."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from sublet.disk.durable import write_durably
from sublet.disk.plain_file import read_plain
from sublet.protocol.change_counts import ChangeCounts, ChangeSetStatus
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit.shadow_git import EXECUTABLE, SYMLINK
from sublet.workspace.staging.staged_result import (
    ChangedPath,
    ChangeSet,
    DirectoryChange,
    PathChange,
    no_result,
)

DIRECTORY_PERMISSIONS: Final = 0o755
"""Of a directory of which nothing else is known."""
_FILE: Final = "change-set.json"
MAX_KEPT_BYTES: Final = 256 << 20
"""Of one document: a result may change a hundred thousand files."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a path holds, as snapshots have it: a file or a link, the id of its blob, and whether it is executable."""

    blob: str
    link: bool = False
    executable: bool = False

    @classmethod
    def of(cls, mode: int, blob: str) -> Content:
        """Return the content that a snapshot records as ``mode`` and ``blob``."""
        return cls(blob, mode == SYMLINK, mode == EXECUTABLE)


@dataclass(frozen=True, slots=True)
class Entry:
    """One changed path.

    ``stored`` is the number of the file that holds the new content, the same for all names of one file; None for links,
    deletions and what could not be read (``problem`` says why). ``target`` is a new link's. ``permissions`` and
    ``modified_ns`` are the new file's; ``permissions_before`` are the old file's, None where there was none, and in
    records of the first version, which applied no permissions but the executable bit.
    """

    path: bytes
    before: Content | None
    after: Content | None
    stored: int | None = None
    target: bytes | None = None
    permissions: int = 0o644
    modified_ns: int = 0
    renamed_from: bytes | None = None
    lines: tuple[int, int] | None = None
    problem: str = ""
    permissions_before: int | None = None

    def shown(self) -> ChangedPath:
        """Return what faces are told of it."""
        added, deleted = self.lines or (None, None)
        now = self.permissions if self.after is not None and not self.after.link else None
        modes = (self.permissions_before, now)
        change: PathChange = "mode" if self.same_content else "changed"
        if self.renamed_from is not None:
            change = "renamed"
        elif self.before is None:
            change = "added"
        elif self.after is None:
            change = "deleted"
        return ChangedPath(self.path, change, self.renamed_from, added, deleted, *modes)

    @property
    def same_content(self) -> bool:
        """Whether only permissions differ."""
        before, after = self.before, self.after
        return before is not None and after is not None and (before.blob, before.link) == (after.blob, after.link)


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """Everything that is known of one change set.

    ``directories`` are those that were made, removed, or got other permissions. ``baseline_files`` is how many files
    and links the directory had, ``baseline_directories`` how many directories.
    """

    key: str
    root: Path
    baseline: str
    result: str
    baseline_files: int
    entries: tuple[Entry, ...] = ()
    directories: tuple[DirectoryChange, ...] = ()
    unread: tuple[tuple[bytes, str], ...] = ()
    status: ChangeSetStatus = "pending"
    counts: ChangeCounts = field(default_factory=ChangeCounts)
    baseline_directories: int = 0

    def shown(self) -> ChangeSet:
        """Return what faces are told of it; the old side of a rename is told by the new one."""
        sources = {entry.renamed_from for entry in self.entries if entry.renamed_from is not None}
        files = [e.shown() for e in self.entries if not (e.after is None and e.path in sources)]
        return ChangeSet(
            self.key,
            self.root,
            self.baseline,
            self.result,
            self.status,
            self.counts,
            tuple(files),
            self.unread,
            self.directories,
        )


def count(entries: Iterable[Entry], directories: Iterable[DirectoryChange] = ()) -> ChangeCounts:
    """Return how much ``entries`` and ``directories`` change."""
    entries = list(entries)
    sources = {entry.renamed_from for entry in entries if entry.renamed_from is not None}
    kinds = {"added": 0, "changed": 0, "deleted": 0, "renamed": 0, "mode": 0}
    for entry in entries:
        if entry.after is None and entry.path in sources:
            continue
        kinds[entry.shown().change] += 1
    lines = [entry.lines for entry in entries if entry.lines is not None]
    changed = Counter(directory.change for directory in directories)
    return ChangeCounts(
        kinds["added"],
        kinds["changed"],
        kinds["deleted"],
        kinds["renamed"],
        kinds["mode"],
        sum(pair[0] for pair in lines),
        sum(pair[1] for pair in lines),
        changed["added"],
        changed["deleted"],
        changed["mode"],
    )


def save(directory: Path, record: ChangeRecord) -> None:
    """Write ``record`` whole or not at all, to survive a loss of power."""
    write_durably(directory / _FILE, json.dumps(record, default=plain).encode())


def load(directory: Path, key: str) -> ChangeRecord:
    """Return the change set in ``directory``.

    Raises:
        SubletError: ``NOT_FOUND`` where there is none, ``UNAVAILABLE`` where it can't be read.
    """
    try:
        found = read_kept(directory / _FILE)
        return _record(found)
    except FileNotFoundError:
        raise no_result(key) from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as exc:
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"the staged result of {key} can't be read: {type(exc).__name__}",
            "Discard it and delegate again.",
        ) from None


def read_kept(path: Path) -> Any:
    """Return the JSON document of a result. It is bounded, and a FIFO in its place keeps nobody waiting.

    Raises:
        OSError: it is not there, or no file.
        ValueError: it is no JSON.
        RecursionError: it is nested too deep.
    """
    raw = read_plain(path, MAX_KEPT_BYTES, follow=False)
    if len(raw) > MAX_KEPT_BYTES:
        raise ValueError("it is too large")
    return json.loads(raw)


def remove(directory: Path) -> None:
    """Make ``load`` find nothing any more."""
    with contextlib.suppress(FileNotFoundError):
        (directory / _FILE).unlink()


def encode_path(path: bytes) -> str:
    """Return ``path`` as JSON can hold it, whatever its bytes."""
    return os.fsdecode(path)


def plain(value: object) -> object:
    """Return bytes, paths and records as JSON can hold them, for ``json.dumps``; ``asdict`` would copy all of it first.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(value, bytes):
        return encode_path(value)
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    raise TypeError(type(value).__name__)


def _record(found: dict[str, Any]) -> ChangeRecord:
    return ChangeRecord(
        key=found["key"],
        root=Path(found["root"]),
        baseline=found["baseline"],
        result=found["result"],
        baseline_files=found["baseline_files"],
        entries=tuple(_entry(entry) for entry in found["entries"]),
        directories=tuple(_directories(found)),
        unread=tuple((os.fsencode(path), reason) for path, reason in found["unread"]),
        status=found["status"],
        counts=ChangeCounts(**found["counts"]),
        baseline_directories=found.get("baseline_directories", 0),
    )


def _directories(found: dict[str, Any]) -> Iterator[DirectoryChange]:
    if "directories" in found:
        for directory in found["directories"]:
            yield DirectoryChange(os.fsencode(directory["path"]), directory["before"], directory["after"])
        return
    # The first version kept two lists, and of what is gone the names alone.
    for path, mode in found["directories_added"]:
        yield DirectoryChange(os.fsencode(path), None, mode)
    for path in found["directories_removed"]:
        yield DirectoryChange(os.fsencode(path), DIRECTORY_PERMISSIONS, None)


def _entry(found: dict[str, Any]) -> Entry:
    return Entry(
        path=os.fsencode(found["path"]),
        before=None if found["before"] is None else Content(**found["before"]),
        after=None if found["after"] is None else Content(**found["after"]),
        stored=found["stored"],
        target=None if found["target"] is None else os.fsencode(found["target"]),
        permissions=found["permissions"],
        modified_ns=found["modified_ns"],
        renamed_from=None if found["renamed_from"] is None else os.fsencode(found["renamed_from"]),
        lines=None if found["lines"] is None else (found["lines"][0], found["lines"][1]),
        problem=found["problem"],
        permissions_before=found.get("permissions_before"),
    )
