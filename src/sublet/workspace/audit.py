"""What a lease changed: a snapshot before, a snapshot after, and who did it (AWCP 6.4, DESIGN 4.8).

Snapshots are commits of a shadow repository per workspace in the state directory. They are made by walking the export
with the lease's own rules and reading what is there; the workspace itself is only ever read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_name, escape_text
from sublet.workspace import manifest as manifests
from sublet.workspace.disk_usage import disk_usage
from sublet.workspace.manifest import Manifest
from sublet.workspace.model import ViewRules
from sublet.workspace.shadow_git import SYMLINK, ShadowGit, checked_id
from sublet.workspace.snapshot import take

MAX_REPORT_FILES: Final = 10_000
"""Changed files that a report lists; its counts go on."""
MAX_PATCH_BYTES: Final = 1024 * 1024
MAX_NUMSTAT_BYTES: Final = 16 * 1024 * 1024

_GONE: Final = "gone-"

Change = Literal["added", "changed", "deleted", "mode"]


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One changed file. ``lines_*`` are None for what is not text, or was not counted within bounds.

    ``by`` is ``executor`` where the lease's own write log has the file or a directory above it.
    """

    path: bytes
    change: Change
    by: Literal["executor", "other"]
    lines_added: int | None = None
    lines_deleted: int | None = None

    @property
    def shown(self) -> str:
        """The path in a form that is safe to show."""
        return clean_name(self.path)


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The report of one lease. ``baseline`` and ``result`` name the snapshots that ``Auditor.patch`` compares.

    ``unaudited`` are paths that could not be read, and why; what lies there may have changed unseen. ``truncated`` says
    that more files changed than ``files`` lists; ``counts`` are complete.
    """

    baseline: str
    result: str
    files: tuple[ChangedFile, ...] = ()
    counts: dict[Change, int] = field(default_factory=dict)
    lines_added: int = 0
    lines_deleted: int = 0
    unaudited: tuple[tuple[bytes, str], ...] = ()
    truncated: bool = False

    def named(self, change: Change) -> list[str]:
        """Return the listed files with this change, safe to show."""
        return [f.shown for f in self.files if f.change == change]

    @property
    def by_others(self) -> list[str]:
        """The listed files that changed during the lease, but not through it."""
        return [f.shown for f in self.files if f.by == "other"]


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch as text that is safe to show, and whether it was cut."""

    text: str
    truncated: bool


@dataclass(frozen=True, slots=True)
class KeptSnapshots:
    """The snapshots of one workspace: since when (Unix seconds) nothing was added, and how many bytes they take."""

    workspace: Path
    changed_at: float
    bytes: int


class Auditor:
    """Makes and compares snapshots. Every method blocks: call it in a thread.

    Args:
        state_dir: private directory of the daemon; each workspace gets a subdirectory of its ``shadows``.
    """

    def __init__(self, state_dir: Path) -> None:
        self._shadows = state_dir / "shadows"

    def baseline(self, root: Path, rules: ViewRules) -> str:
        """Snapshot the workspace before a lease and return the snapshot's id.

        Raises:
            SubletError: ``DEP_MISSING`` without git, ``UNAVAILABLE`` for a tree that can't be read or is too large.
        """
        with self._locked(root, create=True) as shadow:
            head = shadow.head()
            commit, _, _ = shadow.snapshot(root, rules, head, shadow.manifest(head))
        return commit

    def result(
        self, snapshot: str, root: Path, rules: ViewRules, touched: Collection[bytes], overflow: bool
    ) -> AuditResult:
        """Snapshot the workspace after a lease and report what differs from ``snapshot``.

        Args:
            snapshot: what ``baseline`` returned.
            root: the same workspace.
            rules: the rules with which the baseline was made.
            touched: paths below the root that the lease wrote, removed or renamed.
            overflow: whether ``touched`` is incomplete; then every change counts as the executor's.

        Raises:
            SubletError: as ``baseline``; ``NOT_FOUND`` for an unknown snapshot.
        """
        with self._locked(root) as shadow:
            before = shadow.manifest(checked_id(snapshot))
            commit, after, unaudited = shadow.snapshot(root, rules, snapshot, before)
            report = _compare(before, after, _author(touched, overflow))
            lines: dict[bytes, tuple[int, int] | None] = {}
            if report:
                lines = shadow.git.line_counts(snapshot, commit, limit=MAX_NUMSTAT_BYTES)
                shadow.git.compact()
        counts: dict[Change, int] = {}
        for changed in report:
            counts[changed.change] = counts.get(changed.change, 0) + 1
        sums = [n for n in lines.values() if n is not None]
        return AuditResult(
            baseline=snapshot,
            result=commit,
            files=tuple(_with_lines(f, lines.get(f.path)) for f in report[:MAX_REPORT_FILES]),
            counts=counts,
            lines_added=sum(n[0] for n in sums),
            lines_deleted=sum(n[1] for n in sums),
            unaudited=tuple(unaudited),
            truncated=len(report) > MAX_REPORT_FILES,
        )

    def patch(self, root: Path, baseline: str, result: str, *, below: str = "", limit: int | None = None) -> Patch:
        """Return the difference of two snapshots as a unified patch.

        Args:
            root: the workspace.
            baseline: what is compared with.
            result: what is compared.
            below: a plain name that leads the names of all files, as that of a directory they lie in.
            limit: bytes after which it is cut, ``MAX_PATCH_BYTES`` by default.

        Raises:
            SubletError: ``NOT_FOUND`` where the snapshots are not kept any more.
        """
        with self._locked(root) as shadow:
            raw, truncated = shadow.git.patch(
                baseline, result, limit=MAX_PATCH_BYTES if limit is None else limit, below=below
            )
        return Patch(escape_text(raw), truncated)

    def forget(self, root: Path) -> None:
        """Remove all snapshots of the workspace. Forgetting twice is no error."""
        with contextlib.suppress(SubletError), self._locked(root) as shadow:
            # Taken away in one step: who is killed halfway leaves a directory that is gone, never a torn repository.
            gone = self._shadows / f"{_GONE}{secrets.token_hex(8)}"
            shadow.directory.rename(gone)
            shutil.rmtree(gone)

    def kept(self) -> list[KeptSnapshots]:
        """Return which workspaces have snapshots and what those take, and clear away what a killed process began."""
        found: list[KeptSnapshots] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._shadows) as entries:
            for entry in entries:
                if entry.name.startswith(_GONE):
                    shutil.rmtree(entry.path, ignore_errors=True)
                    continue
                with contextlib.suppress(OSError):
                    workspace = Path(os.fsdecode((Path(entry.path) / "workspace").read_bytes()))
                    found.append(KeptSnapshots(workspace, entry.stat().st_mtime, disk_usage(Path(entry.path))))
        return found

    @contextlib.contextmanager
    def _locked(self, root: Path, *, create: bool = False) -> Iterator[_Shadow]:
        """Hold the shadow of ``root`` alone: audits of one workspace follow one another."""
        real = os.path.realpath(os.fsencode(root))
        directory = self._shadows / hashlib.sha256(real).hexdigest()[:40]
        try:
            lock = _lock(directory, create=create)
        except FileNotFoundError:
            raise SubletError(
                LocalCode.NOT_FOUND,
                f"there is no snapshot of {clean_name(real)} to compare with",
                "It was never audited, or its record was pruned.",
            ) from None
        try:
            shadow = _Shadow(directory)
            if create:
                shadow.create(real)
            yield shadow
        finally:
            os.close(lock)


def _lock(directory: Path, *, create: bool) -> int:
    """Return a descriptor that holds the lock of ``directory`` until it is closed."""
    while True:
        if create:
            directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), (directory / "lock").stat()):
                    return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # forgotten while this one waited: the lock is that of a removed directory


class _Shadow:
    """The files of one workspace's audit: repository, manifests, and which snapshot is the newest."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.git = ShadowGit(directory / "git")
        self._manifests = directory / "manifests"
        self._head = directory / "head"
        self._salt = directory / "salt"

    def create(self, real: bytes) -> None:
        """Make what is missing."""
        self._manifests.mkdir(mode=0o700, exist_ok=True)
        self.git.create()
        if not self._salt.exists():
            (self.directory / "workspace").write_bytes(real)
            draft = self.directory / "salt.new"
            draft.write_bytes(secrets.token_hex(16).encode())
            draft.replace(self._salt)

    def head(self) -> str | None:
        """Return the newest snapshot, or None where there is none that can be used."""
        with contextlib.suppress(FileNotFoundError, SubletError):
            return checked_id(self._head.read_text())
        return None

    def manifest(self, commit: str | None) -> dict[bytes, manifests.Record]:
        """Return what ``commit`` holds."""
        if commit is None:
            return {}
        known = manifests.load(self._manifests, commit)
        if known is not None:
            return known
        return {path: manifests.Record(mode, blob, None) for path, mode, blob in self.git.entries(commit)}

    def snapshot(
        self, root: Path, rules: ViewRules, parent: str | None, known: Manifest
    ) -> tuple[str, Manifest, list[tuple[bytes, str]]]:
        """Read the workspace, commit what differs from ``parent``; return the commit, its manifest and what failed."""
        with self.git.importer() as importer:
            taken = take(root, rules, known, self._salt.read_bytes(), importer.blob)
            found = taken.manifest
            changed = [(p, r.mode, r.blob) for p, r in found.items() if p not in known or known[p][:2] != r[:2]]
            # Git can't be told that a link replaces a file of a name it refuses for links: it goes first.
            deleted = [
                p for p, r in known.items() if p not in found or (r.mode == SYMLINK) != (found[p].mode == SYMLINK)
            ]
            commit = parent
            if commit is None or changed or deleted:
                commit = importer.commit(parent, deleted, changed)
        if commit != parent or found != known:
            manifests.save(self._manifests, commit, found)
        if self.head() != commit:
            draft = self.directory / "head.new"
            draft.write_text(commit)
            draft.replace(self._head)
        return commit, found, taken.unread


def _compare(
    before: Manifest, after: Manifest, author: Callable[[bytes], Literal["executor", "other"]]
) -> list[ChangedFile]:
    changes: list[ChangedFile] = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        change: Change
        if old is None:
            change = "added"
        elif new is None:
            change = "deleted"
        elif old.blob != new.blob or (old.mode == SYMLINK) != (new.mode == SYMLINK):
            change = "changed"
        elif old.mode != new.mode:
            change = "mode"
        else:
            continue
        changes.append(ChangedFile(path, change, author(path)))
    return changes


def _author(touched: Collection[bytes], overflow: bool) -> Callable[[bytes], Literal["executor", "other"]]:
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


def _with_lines(changed: ChangedFile, lines: tuple[int, int] | None) -> ChangedFile:
    if lines is None:
        return changed
    return ChangedFile(changed.path, changed.change, changed.by, lines[0], lines[1])
