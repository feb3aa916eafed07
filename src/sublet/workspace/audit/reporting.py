"""What a report of changes says: which files and directories changed, how, through whom, and as a patch (AWCP 6.4).

Rules: the counts are always complete; the lists and the patch are cut at a bound, and then say so; what could not be
read is told of, since it may have changed unseen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar

from sublet.protocol.text import escape_text
from sublet.workspace.audit import comparing
from sublet.workspace.audit.comparing import Author, Change, ChangedDirectory, ChangedFile, DirectoryKind
from sublet.workspace.audit.manifest import Manifest, knows_directories
from sublet.workspace.audit.shadow import Shadow
from sublet.workspace.audit.shadow_git import checked_id

MAX_REPORT_FILES: Final = 10_000
"""Changed files that a report lists; its counts go on."""


MAX_REPORT_BYTES: Final = 1024 * 1024
"""Of the paths of the files that a report lists; as much of directories, and of what could not be looked at."""


MAX_PATCH_BYTES: Final = 1024 * 1024


MAX_NUMSTAT_BYTES: Final = 16 * 1024 * 1024


_C = TypeVar("_C")


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The report of one lease. ``baseline`` and ``result`` name the snapshots that ``Auditor.patch`` compares.

    ``files`` and ``counts`` are of files and links, ``directories`` and ``directory_counts`` of directories.
    ``unaudited`` are paths that could not be read, and why; what lies there may have changed unseen. ``truncated`` says
    that more changed than is listed; the counts are complete.
    """

    baseline: str
    result: str
    files: tuple[ChangedFile, ...] = ()
    counts: dict[Change, int] = field(default_factory=dict)
    lines_added: int = 0
    lines_deleted: int = 0
    unaudited: tuple[tuple[bytes, str], ...] = ()
    truncated: bool = False
    directories: tuple[ChangedDirectory, ...] = ()
    directory_counts: dict[DirectoryKind, int] = field(default_factory=dict)

    def named(self, change: Change) -> list[str]:
        """Return the listed files with this change, safe to show."""
        return [f.shown for f in self.files if f.change == change]

    @property
    def by_others(self) -> list[str]:
        """The listed files and directories that changed during the lease, but not through it."""
        changed: Sequence[ChangedFile | ChangedDirectory] = (*self.files, *self.directories)
        return [one.shown for one in changed if one.by == "other"]


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch as text that is safe to show, and whether it was cut."""

    text: str
    truncated: bool


def made_patch(
    shadow: Shadow, baseline: str, result: str, *, below: str = "", limit: int | None = None, renames: bool = False
) -> Patch:
    """Return what git says of two snapshots, with the directories and permissions before that git does not keep."""
    limit = MAX_PATCH_BYTES if limit is None else limit
    before, after = checked_id(baseline), checked_id(result)
    head = b""
    if before != after:
        head = comparing.patch_of(*shadow.differing(before, after), below, limit=limit)
    raw, cut = shadow.git.patch(before, after, limit=max(0, limit - len(head)), below=below, renames=renames)
    return Patch(escape_text(head[:limit] + raw), cut or len(head) > limit)


def report_of(
    shadow: Shadow,
    before: tuple[str, Manifest],
    after: tuple[str, Manifest],
    author: Author,
    unaudited: list[tuple[bytes, str]],
) -> AuditResult:
    """Return the report of what differs between two snapshots.

    Args:
        shadow: the repository that has both.
        before: the older snapshot's id, with what it holds.
        after: the newer one's.
        author: tells who changed a path.
        unaudited: paths that could not be read, and why.
    """
    files, directories = _Listed[ChangedFile](), _Listed[ChangedDirectory]()
    for changed in comparing.changes(before[1], after[1], author):
        if isinstance(changed, ChangedFile):
            files.add(changed, changed.path)
            files.counts[changed.change] += 1
        else:
            directories.add(changed, changed.path)
            directories.counts[changed.change] += 1
    lines: dict[bytes, tuple[int, int] | None] = {}
    if before[0] != after[0]:
        if files.counts.keys() - {"mode"}:
            lines = shadow.git.line_counts(before[0], after[0], limit=MAX_NUMSTAT_BYTES)
        shadow.git.compact()
    if not knows_directories(before[1]):
        unaudited = [*unaudited, (b".", "directories and permissions were not recorded before the lease")]
    sums = [n for n in lines.values() if n is not None]
    return AuditResult(
        baseline=before[0],
        result=after[0],
        files=tuple(comparing.with_lines(f, lines.get(f.path)) for f in files.listed),
        counts=dict(files.counts),
        lines_added=sum(n[0] for n in sums),
        lines_deleted=sum(n[1] for n in sums),
        unaudited=tuple(unaudited),
        truncated=files.truncated or directories.truncated,
        directories=tuple(directories.listed),
        directory_counts=dict(directories.counts),
    )


class _Listed(Generic[_C]):
    """The first changes, as many as a report lists, and the counts of all."""

    def __init__(self) -> None:
        self.listed: list[_C] = []
        self.counts: Counter[Any] = Counter()
        self.truncated = False
        self._bytes = 0

    def add(self, changed: _C, path: bytes) -> None:
        """List one more where there is room."""
        self._bytes += len(path)
        if len(self.listed) >= MAX_REPORT_FILES or self._bytes > MAX_REPORT_BYTES:
            self.truncated = True
        else:
            self.listed.append(changed)


def author_of(touched: Collection[bytes], overflow: bool) -> Author:
    """Return who changed a path: a renamed or removed directory stands for all below it."""

    def author(path: bytes) -> Literal["executor", "other"]:
        if overflow or path in touched:
            return "executor"
        end = path.rfind(b"/")
        while end > 0:
            if path[:end] in touched:
                return "executor"
            end = path.rfind(b"/", 0, end)
        return "other"

    return author
