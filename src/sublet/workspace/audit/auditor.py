"""What a lease changed: a snapshot before, a snapshot after, and who did it (AWCP 6.4, DESIGN 4.8).

Snapshots are commits of a shadow repository per workspace in the state directory. They are made by walking the export
with the lease's own rules and reading what is there; the workspace itself is only ever read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sublet.disk.disk_usage import disk_usage
from sublet.disk.removal import is_removed, remove_tree
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_name
from sublet.workspace.audit.collecting import no_full_collections
from sublet.workspace.audit.manifest import Manifest
from sublet.workspace.audit.reporting import AuditResult, Patch, author_of, made_patch, report_of
from sublet.workspace.audit.shadow import Shadow, Sound, lock
from sublet.workspace.audit.shadow_git import ShadowGit, checked_id
from sublet.workspace.audit.snapshot import MAX_LENT_ENTRIES
from sublet.workspace.export import ViewRules
from sublet.workspace.git.refs import MovedRef, moved, read_refs

MAX_SOUND: Final = 256
"""Workspaces whose newest snapshot is known to be whole."""

_GONE: Final = "gone-"


@dataclass(frozen=True, slots=True)
class KeptSnapshots:
    """The snapshots of one workspace: since when (Unix seconds) nothing was added, and how many bytes they take."""

    workspace: Path
    changed_at: float
    bytes: int


@dataclass(frozen=True, slots=True)
class ViewSnapshot:
    """A snapshot of a private view, with what it holds and the secret that names what is too large to keep."""

    commit: str
    manifest: Manifest
    unread: tuple[tuple[bytes, str], ...]
    salt: bytes


class Auditor:
    """Makes and compares snapshots. Every method blocks: call it in a thread.

    Args:
        state_dir: private directory of the daemon; each workspace gets a subdirectory of its ``shadows``.
    """

    def __init__(self, state_dir: Path) -> None:
        self._shadows = state_dir / "shadows"
        self._sound: OrderedDict[Path, Sound] = OrderedDict()
        self._sounding = threading.Lock()

    def baseline(self, root: Path, rules: ViewRules, tell: Callable[[Manifest], None] = lambda _: None) -> str:
        """Snapshot the workspace before a lease and return the snapshot's id.

        Args:
            root: the workspace.
            rules: those of the lease.
            tell: called with what the snapshot holds.

        Raises:
            SubletError: ``DEP_MISSING`` without git, ``UNAVAILABLE`` for a tree that can't be read or is too large.
        """
        with self._locked(root, create=True) as shadow:
            head = shadow.head(self._sound.get(shadow.directory))
            commit, found, _ = shadow.snapshot(root, rules, head, shadow.manifest(head), most=MAX_LENT_ENTRIES)
            self._remember(shadow, commit)
        tell(found)
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
            found = report_of(shadow, (snapshot, before), (commit, after), author_of(touched, overflow), unaudited)
            if commit != snapshot:
                self._remember(shadow, commit)
            return found

    def view_baseline(self, root: Path, rules: ViewRules, view: int) -> ViewSnapshot:
        """Snapshot a private view of ``root`` before its lease, among the snapshots of ``root``.

        Args:
            root: the directory that the view is of.
            rules: those of the lease.
            view: descriptor of the view's root; it stays the caller's.

        Raises:
            SubletError: as ``baseline``.
        """
        with self._locked(root, create=True) as shadow:
            head = shadow.head()
            commit, found, unread = shadow.snapshot(
                view, rules, head, shadow.manifest(head), moves_head=False, most=MAX_LENT_ENTRIES
            )
            return ViewSnapshot(commit, found, tuple(unread), shadow.salt)

    def view_result(
        self, snapshot: str, root: Path, rules: ViewRules, view: int, own: Callable[[bytes], bool]
    ) -> tuple[ViewSnapshot, ViewSnapshot, AuditResult]:
        """Snapshot a private view after its lease and report what differs from ``snapshot``, all the executor's.

        Args:
            snapshot: what ``view_baseline`` returned.
            root: the directory that the view is of.
            rules: the rules with which the baseline was made.
            view: descriptor of the view's root; it stays the caller's.
            own: whether what differs at a path was changed in the view; the rest is left out.

        Returns:
            The snapshots before and after, and the report.

        Raises:
            SubletError: as ``result``.
        """
        with self._locked(root) as shadow:
            before = shadow.manifest(checked_id(snapshot))
            commit, after, unread = shadow.snapshot(view, rules, snapshot, before, moves_head=False, own=own)
            report = report_of(shadow, (snapshot, before), (commit, after), lambda _: "executor", unread)
            salt = shadow.salt
        return ViewSnapshot(snapshot, before, (), salt), ViewSnapshot(commit, after, tuple(unread), salt), report

    def manifest(self, root: Path, snapshot: str) -> Manifest:
        """Return what a snapshot of ``root`` holds.

        Raises:
            SubletError: ``NOT_FOUND`` where it is not kept any more.
        """
        with self._locked(root) as shadow:
            return shadow.manifest(checked_id(snapshot))

    def differing(self, root: Path, before: str, after: str) -> tuple[Manifest, Manifest]:
        """Return what two snapshots of ``root`` hold, with what is the same in both left out where that is cheap.

        Raises:
            SubletError: as ``manifest``.
        """
        with self._locked(root) as shadow:
            return shadow.differing(checked_id(before), checked_id(after))

    def salt(self, root: Path) -> bytes:
        """Return the secret by which the snapshots of ``root`` name files that are too large to keep.

        Raises:
            SubletError: ``NOT_FOUND`` where there are no snapshots.
        """
        with self._locked(root) as shadow:
            return shadow.salt

    @contextlib.contextmanager
    def repository(self, root: Path) -> Iterator[ShadowGit]:
        """Hold the repository with the snapshots of ``root`` alone.

        Raises:
            SubletError: ``NOT_FOUND`` where there are no snapshots.
        """
        with self._locked(root) as shadow:
            yield shadow.git

    def watch_refs(self, root: Path, snapshot: str) -> None:
        """Keep the references of the repository at ``root`` beside ``snapshot``.

        Raises:
            SubletError: ``UNAVAILABLE`` where they can't be read, and as ``baseline``.
        """
        with self._locked(root) as shadow:
            shadow.keep_refs(checked_id(snapshot), _refs(root))

    def moved_refs(self, root: Path, snapshot: str) -> list[MovedRef]:
        """Return which references are others now than when ``watch_refs`` kept them beside ``snapshot``.

        Raises:
            SubletError: ``NOT_FOUND`` where none are kept, ``UNAVAILABLE`` where they can't be read.
        """
        with self._locked(root) as shadow:
            return moved(shadow.kept_refs(checked_id(snapshot)), _refs(root))

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
            return made_patch(shadow, baseline, result, below=below, limit=limit)

    def whole_patch(self, root: Path, baseline: str, result: str, *, limit: int | None = None) -> Patch:
        """Return the difference of two snapshots as ``patch`` does, with renamed files told as such.

        Raises:
            SubletError: as ``patch``.
        """
        with self._locked(root) as shadow:
            return made_patch(shadow, baseline, result, limit=limit, renames=True)

    def forget(self, root: Path) -> None:
        """Remove all snapshots of the workspace. Forgetting twice is no error."""
        with contextlib.suppress(SubletError), self._locked(root) as shadow:
            # Taken away in one step: who is killed halfway leaves a directory that is gone, never a torn repository.
            gone = self._shadows / f"{_GONE}{secrets.token_hex(8)}"
            shadow.directory.rename(gone)
            remove_tree(gone)

    def kept(self) -> list[KeptSnapshots]:
        """Return which workspaces have snapshots and what those take, and clear away what a killed process began."""
        found: list[KeptSnapshots] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._shadows) as entries:
            for entry in entries:
                if entry.name.startswith(_GONE):
                    is_removed(Path(entry.path))
                    continue
                with contextlib.suppress(OSError):
                    workspace = Path(os.fsdecode((Path(entry.path) / "workspace").read_bytes()))
                    found.append(KeptSnapshots(workspace, entry.stat().st_mtime, disk_usage(Path(entry.path))))
        return found

    def _remember(self, shadow: Shadow, commit: str) -> None:
        """Remember that git has made or found a snapshot, so that the next audit need not ask it."""
        with self._sounding:
            self._sound.pop(shadow.directory, None)
            if (sound := shadow.sound(commit)) is not None:
                self._sound[shadow.directory] = sound
            if len(self._sound) > MAX_SOUND:
                self._sound.popitem(last=False)

    @contextlib.contextmanager
    def _locked(self, root: Path, *, create: bool = False) -> Iterator[Shadow]:
        """Hold the shadow of ``root`` alone: audits of one workspace follow one another."""
        real = os.path.realpath(os.fsencode(root))
        directory = self._shadows / hashlib.sha256(real).hexdigest()[:40]
        try:
            held = lock(directory, create=create)
        except FileNotFoundError:
            raise SubletError(
                LocalCode.NOT_FOUND,
                f"there is no snapshot of {clean_name(real)} to compare with",
                "It was never audited, or its record was pruned.",
            ) from None
        try:
            shadow = Shadow(directory)
            if create:
                shadow.create(real)
            with no_full_collections():
                yield shadow
        finally:
            os.close(held)


def _refs(root: Path) -> dict[bytes, bytes]:
    try:
        return read_refs(root)
    except OSError as exc:
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"the references of the repository can't be read: {os.strerror(exc.errno or 0)}",
            "Lend a repository all of which you can read, or leave it hidden.",
        ) from None
