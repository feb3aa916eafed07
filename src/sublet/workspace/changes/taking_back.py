"""The change set that takes a live lease back: from what it left to what was there before (DESIGN 13).

It is made when somebody asks for it, and merged with the directory as any other: what nobody has changed since becomes
what it was, text that was changed elsewhere is merged, and what can't be is a conflict.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sublet.disk.durable import Syncing
from sublet.disk.removal import remove_tree
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit.auditor import MAX_NUMSTAT_BYTES, author_of
from sublet.workspace.audit.comparing import compare
from sublet.workspace.audit.manifest import Manifest, Record, file_of
from sublet.workspace.audit.shadow_git import EXECUTABLE, PLAIN, SYMLINK, ShadowGit, blob_id
from sublet.workspace.audit.snapshot import MAX_STORED_BYTES, is_stand_in, read_record
from sublet.workspace.changes import record as change_record
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.changes.record import ChangeRecord, Content, Entry
from sublet.workspace.changes.tree import Tree
from sublet.workspace.file_copy import copy_content
from sublet.workspace.kept.account import Written, written
from sublet.workspace.kept.log import KeptState, Overwritten, load
from sublet.workspace.staging.model import MAX_CHANGED_FILES, DirectoryChange

KEPT: Final = "kept"
"""Directory beside a change set that keeps what a live lease overwrote."""
_NOT_KEPT: Final = "what was there before could not be kept"
_OTHERS: Final = "somebody else changed it after the executor did"
_PERMISSIONS: Final = 0o777
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def make_taking_back(changes: ChangeSets, key: str, root: Path, baseline: str, result: str) -> None:
    """Make the change set that takes back what a live lease did in one directory.

    The caller holds the directory's lock.

    Args:
        changes: keeps it under ``key``.
        key: that of the directory in the lease.
        root: the directory.
        baseline: the snapshot before the lease.
        result: the one after it.

    Raises:
        SubletError: ``NOT_FOUND`` where what is needed for it is not kept any more; ``UNAVAILABLE`` where it can't be
            read or made.
    """
    directory = changes.directory(key)
    try:
        lease = _Lease(
            load(directory / KEPT),
            written(directory / KEPT),
            changes.auditor.manifest(root, baseline),
            changes.auditor.manifest(root, result),
        )
        with Tree(root, changes.auditor.salt(root)) as tree, changes.auditor.repository(root) as git:
            renamed = git.renames(result, baseline, limit=MAX_NUMSTAT_BYTES) if baseline != result else {}
            with _Making(directory, lease, git, tree) as making:
                entries = [
                    dataclasses.replace(entry, renamed_from=renamed.get(entry.path)) for entry in making.entries()
                ]
                making.finish()
    except FileNotFoundError:
        raise SubletError(
            LocalCode.NOT_FOUND,
            f"what {key} overwrote is not kept",
            f"It was pruned, or lent by a version that kept nothing. See: sublet diff {key}",
        ) from None
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else type(exc).__name__
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"what {key} overwrote can't be read: {reason}",
            "Look at the state directory: sublet doctor",
        ) from None
    directories = lease.directories()
    change_record.save(
        directory,
        ChangeRecord(
            key=key,
            root=root,
            baseline=result,
            result=baseline,
            baseline_files=sum(1 for record in lease.after.values() if not record.is_directory),
            entries=tuple(entries),
            directories=directories,
            counts=change_record.count(entries, directories),
        ),
    )


class _Lease:
    """What is known of the lease: what it overwrote and wrote, and the directory before and after."""

    def __init__(self, kept: Overwritten, lease: Written, before: Manifest, after: Manifest) -> None:
        self.kept = kept
        self.written = lease
        self.before = before
        self.after = after
        self._author = author_of(lease.touched, lease.overflow)
        self._difference = compare(after, before, self._author)
        self.states = {path: state for path, state in kept.befores().items() if self._author(path) == "executor"}

    def paths(self) -> list[bytes]:
        """Return the files that differ through the lease, or of which another state is kept."""
        found = {file.path for file in self._difference.files if file.by == "executor"} | self.states.keys()
        if len(found) > MAX_CHANGED_FILES:
            raise ValueError("too many files")
        return sorted(found)

    def directories(self) -> tuple[DirectoryChange, ...]:
        """Return the directories that the lease made, removed, or gave another mode, the other way round."""
        found = {
            one.path: DirectoryChange(one.path, one.mode_before, one.mode_after)
            for one in self._difference.directories
            if one.by == "executor"
        }
        for one in self.kept.directories:
            if one.by == "other" or one.path not in self.before:
                now = self.after.get(one.path)
                before = now.permissions if now is not None and now.is_directory else None
                found[one.path] = DirectoryChange(one.path, before, one.permissions)
        return tuple(change for _, change in sorted(found.items()) if change.before != change.after)


@dataclass(frozen=True, slots=True)
class _Before:
    """What was at a path before: ``content`` is None where nothing was."""

    content: Content | None = None
    stored: int | None = None
    target: bytes | None = None
    permissions: int = 0o644
    modified_ns: int = 0
    problem: str = ""


class _Making:
    """Puts the contents before beside the record, by number."""

    def __init__(self, directory: Path, lease: _Lease, git: ShadowGit, tree: Tree) -> None:
        self._result = directory / "result"
        self._kept = directory / KEPT
        self._lease = lease
        self._git = git
        self._tree = tree
        self._next = 0
        self._syncing = Syncing()
        remove_tree(self._result)  # of an attempt that a crash cut short
        self._result.mkdir(mode=0o700)
        self._fd = os.open(self._result, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._by_blob: Mapping[str, bytes] = {
            record.blob: path for path, record in lease.after.items() if not record.is_directory
        }

    def __enter__(self) -> _Making:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def finish(self) -> None:
        """Return when the contents would survive a loss of power."""
        self._syncing.finish(self._fd)

    def entries(self) -> Iterator[Entry]:
        """Yield what has to change, path by path."""
        for path in self._lease.paths():
            now = file_of(self._lease.after.get(path))
            before = self._before(path)
            left = None if now is None else Content.of(now.mode, now.blob)
            had = None if now is None else now.permissions
            if path in self._lease.written.after:
                before = dataclasses.replace(before, problem=_OTHERS)
            elif left == before.content and (left is None or left.link or had == before.permissions):
                continue
            yield Entry(
                path,
                left,
                before.content,
                before.stored,
                before.target,
                before.permissions,
                before.modified_ns,
                problem=before.problem,
                permissions_before=had,
            )

    def _before(self, path: bytes) -> _Before:
        if (state := self._lease.states.get(path)) is not None:
            return self._of_state(state)
        record = file_of(self._lease.before.get(path))
        return _Before() if record is None else self._of_record(record)

    def _of_state(self, state: KeptState) -> _Before:
        if state.target is not None:
            return _Before(Content(blob_id(state.target), link=True), target=state.target)
        permissions = state.permissions & _PERMISSIONS
        if state.number is None:
            return _Before(
                Content("", executable=bool(permissions & 0o100)), permissions=permissions, problem=_NOT_KEPT
            )
        name = os.fsencode(str(state.number))
        kept = os.open(self._kept, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            blob = read_record(kept, name, self._tree.salt).blob
            stored = self._stored(kept, name)
        finally:
            os.close(kept)
        content = Content.of(EXECUTABLE if permissions & 0o100 else PLAIN, blob)
        return _Before(content, stored, None, permissions, state.modified_ns)

    def _of_record(self, record: Record) -> _Before:
        content = Content.of(record.mode, record.blob)
        usual = 0o755 if record.mode == EXECUTABLE else 0o644
        permissions = (usual if record.permissions is None else record.permissions) & _PERMISSIONS
        data = self._git.blob(record.blob, limit=MAX_STORED_BYTES)
        if record.mode == SYMLINK:
            return _Before(content, target=data, problem="" if data is not None else _NOT_KEPT)
        if data is not None and not is_stand_in(data):
            return _Before(content, self._stored_data(data), None, permissions)
        # Too large for a snapshot, but perhaps it was given another name only.
        path = self._by_blob.get(record.blob)
        if path is not None and (found := self._tree.look(path).content) is not None and found.blob == record.blob:
            with self._tree.parent(path) as (directory, name):
                return _Before(content, self._stored(directory, name), None, permissions)
        return _Before(content, None, None, permissions, problem=_NOT_KEPT)

    def _stored(self, directory: int, name: bytes) -> int:
        source = os.open(name, _READ, dir_fd=directory)
        try:
            number, target = self._new()
            try:
                copy_content(source, target, os.fstat(source).st_size)
                self._syncing.add(target)
            finally:
                os.close(target)
        finally:
            os.close(source)
        return number

    def _stored_data(self, data: bytes) -> int:
        number, target = self._new()
        with open(target, "wb") as file:
            file.write(data)
            file.flush()
            self._syncing.add(target)
        return number

    def _new(self) -> tuple[int, int]:
        number, self._next = self._next, self._next + 1
        return number, os.open(str(number), _CREATE, 0o600, dir_fd=self._fd)
