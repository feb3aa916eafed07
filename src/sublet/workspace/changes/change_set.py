"""Change sets: what an executor changed in its private view, taken out of the view and kept until it is decided upon.

The baseline is a snapshot of the view itself before the lease, so it is exactly what the executor saw, whatever
happened in the directory while the view was made. The result is sealed: its new contents lie beside the record, and the
view is no longer needed. Both snapshots are in the shadow repository of the real directory (DESIGN 4.7, 4.8).
"""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Final

from sublet.disk.durable import Syncing, write_durably
from sublet.disk.openat2 import choose_opener
from sublet.disk.removal import remove_tree
from sublet.protocol.change_counts import ChangeSetStatus
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_name
from sublet.workspace.audit.auditor import Auditor, ViewSnapshot
from sublet.workspace.audit.comparing import compare
from sublet.workspace.audit.manifest import ROOT, Record, file_of, knows_directories
from sublet.workspace.audit.path_tree import PathTree
from sublet.workspace.audit.reporting import MAX_NUMSTAT_BYTES, MAX_PATCH_BYTES, AuditResult, Patch
from sublet.workspace.audit.shadow_git import DIRECTORY
from sublet.workspace.changes import record as change_record
from sublet.workspace.changes.record import ChangeRecord, Content, Entry
from sublet.workspace.export import ViewRules
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from sublet.workspace.staging.copy import copy_content
from sublet.workspace.staging.private_views import Staging
from sublet.workspace.staging.staged_result import (
    MAX_CHANGED_FILES,
    ChangeSet,
    DirectoryChange,
    StagedView,
    checked_key,
    is_key,
    no_result,
)

_OTHERS: Final = 0o066
"""Reading and writing by group and others."""
_EXECUTE: Final = 0o111
_OWNERS_EXECUTE: Final = 0o100
_READ_TO_EXECUTE: Final = 2
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class ChangeSets:
    """The change sets below one state directory. Every method blocks: call it in a thread.

    Args:
        state_dir: private directory of the daemon.
        auditor: keeps the snapshots.
        staging: makes the views.
        git: what git runs in where it reads the delegator's own repository; by default a sandbox.
    """

    def __init__(self, state_dir: Path, auditor: Auditor, staging: Staging, git: GitSandbox | None = None) -> None:
        self._home = state_dir / "changes"
        self.git = git or GitSandbox()
        self.auditor = auditor
        self._staging = staging

    def directory(self, key: str) -> Path:
        """Return where a change set is kept.

        Raises:
            SubletError: ``NOT_FOUND`` for what can't be a key.
        """
        return self._home / checked_key(key)

    def begin(self, view: StagedView, rules: ViewRules) -> str:
        """Record what a view holds before anybody works in it, and return the snapshot's id.

        What is in a repository of the delegator's is never part of a result: not file by file could it be merged.

        Raises:
            SubletError: as ``Auditor.baseline``.
        """
        rules = rules.without_repository()
        directory = self.directory(view.key)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = view.open_root()
        try:
            taken = self.auditor.view_baseline(view.root, rules, fd)
        finally:
            os.close(fd)
        write_durably(directory / "begun.json", json.dumps({"baseline": taken.commit}).encode())
        return taken.commit

    def seal(self, key: str, rules: ViewRules, *, keep_view: bool = False) -> tuple[ChangeSet, AuditResult]:
        """Take what was changed out of the view, once nobody can write into it any more, and remove the view.

        With ``keep_view`` the view stays, for whoever looks at it, until ``Staging.discard``.
        After a crash ``get`` tells whether it was done; where not, the view is still there, and this is called again.

        Returns:
            The change set, and the same as the audit tells it, all of it the executor's.

        Raises:
            SubletError: ``NOT_FOUND`` without a view or a baseline, ``UNAVAILABLE`` for a full disk, else as ``begin``.
        """
        rules = rules.without_repository()
        directory = self.directory(key)
        view = self._staging.find(key)
        if view is None:
            raise no_result(key)
        try:
            begun = change_record.read_kept(directory / "begun.json")
            known = {os.fsencode(path): int(mode) for path, mode in begun.get("directories", ())}
            baseline = str(begun["baseline"])
        except FileNotFoundError:
            raise no_result(key) from None
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as exc:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"what was noted at the beginning of {key} can't be read: {type(exc).__name__}",
                "Delegate again; the executor's view is still there until then.",
            ) from None
        fd = view.open_root()
        try:
            before, after, report = self.auditor.view_result(
                baseline, view.root, rules, fd, lambda path: self._staging.is_own_change(view, path)
            )
            record = self._record(view, _as_begun(view, before, known), after, fd)
        except OSError as exc:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"the result of {key} can't be kept: {_where(exc)}{exc.strerror}",
                "Free space on the disk that holds the state directory; the executor's view is still there.",
            ) from None
        finally:
            os.close(fd)
        change_record.save(directory, record)
        if not keep_view:
            self._staging.discard(key)
        return record.shown(), report

    def get(self, key: str) -> ChangeSet:
        """Return a sealed change set.

        Raises:
            SubletError: ``NOT_FOUND`` where there is none.
        """
        return self.record(key).shown()

    def record(self, key: str) -> ChangeRecord:
        """Return all that is kept of a change set.

        Raises:
            SubletError: ``NOT_FOUND`` where there is none, ``UNAVAILABLE`` where it can't be read.
        """
        return change_record.load(self.directory(key), key)

    def set_status(self, key: str, status: ChangeSetStatus) -> ChangeSet:
        """Record what became of a change set."""
        record = dataclasses.replace(self.record(key), status=status)
        change_record.save(self.directory(key), record)
        return record.shown()

    def patch(self, key: str, *, limit: int = MAX_PATCH_BYTES) -> Patch:
        """Return the whole change as a unified patch with renames and modes, binary files named only.

        Raises:
            SubletError: ``NOT_FOUND`` where it, or its snapshots, are gone.
        """
        record = self.record(key)
        return self.auditor.whole_patch(record.root, record.baseline, record.result, limit=limit)

    def discard(self, key: str) -> None:
        """Remove a change set, its view, and what an undo would need. Removing twice is no error."""
        directory = self.directory(key)
        self._staging.discard(key)
        change_record.remove(directory)
        remove_tree(directory)

    def all_keys(self) -> list[str]:
        """Return the keys of all change sets, the unfinished ones included."""
        return self._staging.aside.names(self._home, is_key)

    def clear(self, key: str) -> None:
        """Take a change set out of the way, whatever it is, to be removed later. For a start alone."""
        self._staging.aside.remove_later(self._home / key)

    def _record(self, view: StagedView, before: ViewSnapshot, after: ViewSnapshot, fd: int) -> ChangeRecord:
        renamed: dict[bytes, bytes] = {}
        lines: dict[bytes, tuple[int, int] | None] = {}
        if before.commit != after.commit:
            with self.auditor.repository(view.root) as git:
                renamed = git.renames(before.commit, after.commit, limit=MAX_NUMSTAT_BYTES)
                lines = git.line_counts(before.commit, after.commit, limit=MAX_NUMSTAT_BYTES, renames=True)
        difference = compare(before.manifest, after.manifest, lambda _: "executor", MAX_CHANGED_FILES + 1)
        if len(difference.files) + len(difference.directories) > MAX_CHANGED_FILES:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"the result of {view.key} changes more than {MAX_CHANGED_FILES:,} files and directories",
                "Discard it, and have the work done in smaller steps.",
            )
        seal = _Sealing(self.directory(view.key) / "result", fd, dict(after.unread))
        entries: list[Entry] = []
        for changed in difference.files:
            old, new = (file_of(side.manifest.get(changed.path)) for side in (before, after))
            entry = Entry(
                changed.path,
                None if old is None else Content.of(old.mode, old.blob),
                None if new is None else Content.of(new.mode, new.blob),
                renamed_from=renamed.get(changed.path),
                lines=lines.get(changed.path),
                permissions_before=None if old is None else old.permissions,
            )
            entries.append(_settled(seal.stored(entry)) if new is not None else entry)
        seal.finish()
        directories = tuple(DirectoryChange(d.path, d.mode_before, d.mode_after) for d in difference.directories)
        return ChangeRecord(
            key=view.key,
            root=view.root,
            baseline=before.commit,
            result=after.commit,
            baseline_files=sum(1 for record in before.manifest.values() if not record.is_directory),
            entries=tuple(entries),
            directories=directories,
            unread=after.unread,
            counts=change_record.count(entries, directories),
            baseline_directories=sum(1 for record in before.manifest.values() if record.is_directory) - 1,
        )


def _where(exc: OSError) -> str:
    """Return the name that an operation failed on, as far as the system told it."""
    return f"{clean_name(exc.filename)}: " if isinstance(exc.filename, bytes) else ""


def _as_begun(view: StagedView, before: ViewSnapshot, known: Mapping[bytes, int]) -> ViewSnapshot:
    """Return ``before`` with the directories that the first version kept beside its snapshots."""
    if knows_directories(before.manifest) or not known or view.kind == "overlay":
        return before
    directories = {path: Record(DIRECTORY, "", None, mode) for path, mode in known.items()}
    root = {ROOT: Record(DIRECTORY, "", None)}
    return dataclasses.replace(before, manifest=PathTree(chain(before.manifest.items(), (root | directories).items())))


def _settled(entry: Entry) -> Entry:
    """Return ``entry`` with the permissions that applying gives.

    Who writes a file anew rarely means its permissions: what the old file kept from others stays kept. Only what
    ``chmod`` alone has changed is taken as it is.
    """
    before = entry.permissions_before
    if before is None or entry.same_content or entry.after is None or entry.after.link:
        return entry
    widened = entry.permissions & ~before & _OTHERS
    permissions = entry.permissions & ~widened
    readers = permissions >> _READ_TO_EXECUTE & _EXECUTE
    return dataclasses.replace(entry, permissions=permissions & ~_EXECUTE | permissions & (readers | _OWNERS_EXECUTE))


class _Sealing:
    """Copies the new contents of a view beside the record, by number: no name of the view is a name here."""

    def __init__(self, directory: Path, view: int, unread: dict[bytes, str]) -> None:
        remove_tree(directory)  # of a sealing that a crash cut short
        directory.mkdir(mode=0o700)
        self._directory = directory
        self._view = view
        self._unread = unread
        self._open = choose_opener()
        self._next = 0
        self._numbers: dict[tuple[int, int], int] = {}
        self._syncing = Syncing()

    def stored(self, entry: Entry) -> Entry:
        """Return ``entry`` with its content stored, or with why it can't be."""
        if entry.path in self._unread:
            return dataclasses.replace(entry, problem=f"it can't be read: {self._unread[entry.path]}")
        above, _, name = entry.path.rpartition(b"/")
        parent = self._open(self._view, above or b".", os.O_PATH | os.O_DIRECTORY)
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                return dataclasses.replace(entry, target=os.readlink(name, dir_fd=parent))
            if not stat.S_ISREG(status.st_mode):
                return dataclasses.replace(entry, problem="it is neither a file, a directory nor a link")
            fd = os.open(name, _READ, dir_fd=parent)
        finally:
            os.close(parent)
        try:
            number = self._number(fd)
        finally:
            os.close(fd)
        permissions = status.st_mode & 0o777
        return dataclasses.replace(entry, stored=number, permissions=permissions, modified_ns=status.st_mtime_ns)

    def finish(self) -> None:
        """Return when what was stored would survive a loss of power."""
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._syncing.finish(fd)
        finally:
            os.close(fd)

    def _number(self, source: int) -> int:
        """Return the number under which a file lies; names of one file get one number, by which they stay one file."""
        status = os.fstat(source)
        identity = (status.st_dev, status.st_ino)
        if status.st_nlink > 1 and identity in self._numbers:
            return self._numbers[identity]
        self._copy(source, status.st_size)
        number, self._next = self._next, self._next + 1
        self._numbers[identity] = number
        return number

    def _copy(self, source: int, size: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        target = os.open(self._directory / str(self._next), flags, 0o600)
        try:
            copy_content(source, target, size)
            self._syncing.add(target)
        finally:
            os.close(target)
