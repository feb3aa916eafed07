"""What was there before a live lease: each content is put beside the change set that takes the lease back, by number.

It comes from the states that the lease kept, or else from the snapshot before it. Of a large file only the blocks may
be kept that were overwritten: its content is built from these and the file as the lease left it, and only where nobody
else has changed that file since.
"""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sublet.disk.durable import Syncing
from sublet.disk.removal import remove_tree
from sublet.workspace.audit.blob_reader import BlobReader
from sublet.workspace.audit.comparing import compare
from sublet.workspace.audit.manifest import Manifest, Record, file_of
from sublet.workspace.audit.reporting import author_of
from sublet.workspace.audit.shadow_git import EXECUTABLE, SYMLINK, blob_id
from sublet.workspace.audit.snapshot import MAX_READ_BYTES, MAX_STORED_BYTES, is_stand_in, read_record
from sublet.workspace.changes.record import Content, Entry
from sublet.workspace.changes.tree import MAX_LOOK_BYTES, Tree
from sublet.workspace.confined.names import is_there
from sublet.workspace.file_copy import copy_content
from sublet.workspace.kept.account import Written
from sublet.workspace.kept.blocks import Mark
from sublet.workspace.kept.log import KeptState, Overwritten
from sublet.workspace.kept.rebuilding import FilesAsLeft, copy_as_left, is_as_left, rebuild
from sublet.workspace.staging.staged_result import MAX_CHANGED_FILES, DirectoryChange

_NOT_KEPT: Final = "what was there before could not be kept"
_DAMAGED: Final = "what is kept of it is damaged"
_OTHERS: Final = "somebody else changed it after the executor did"
_PROBLEMS: Final = {errno.ESTALE: _OTHERS, errno.EBADMSG: _DAMAGED}
_PERMISSIONS: Final = 0o777
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class LeftByLease:
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

    def places(self) -> Collection[bytes]:
        """Return where a file may be that the lease has given another name."""
        return self.after.keys() if self.written.overflow else self.written.touched

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


class Befores:
    """Puts the contents before beside the record, by number; used as a context.

    Args:
        directory: of the change set.
        kept: where the lease has kept what it overwrote.
        lease: what is known of it.
        blobs: reads the snapshots.
        tree: the directory that was lent.
    """

    def __init__(self, directory: Path, kept: Path, lease: LeftByLease, blobs: BlobReader, tree: Tree) -> None:
        self._result = directory / "result"
        self._lease = lease
        self._blobs = blobs
        self._tree = tree
        self._next = 0
        self._syncing = Syncing()
        remove_tree(self._result)  # of an attempt that a crash cut short
        self._result.mkdir(mode=0o700)
        self._kept = os.open(kept, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._fd = os.open(self._result, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._files = FilesAsLeft(tree.fd, lease.places())
        self._by_blob: Mapping[str, bytes] = {
            record.blob: path for path, record in lease.after.items() if not record.is_directory
        }
        self._renamed = {path: Mark(inode, signature) for inode, (signature, path) in lease.kept.unwritten.items()}

    def __enter__(self) -> Befores:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        os.close(self._kept)

    def finish(self) -> None:
        """Return when the contents would survive a loss of power."""
        self._syncing.finish(self._fd)

    def entries(self) -> Iterator[Entry]:
        """Yield what has to change, path by path.

        Raises:
            OSError: something can't be read, or there is no room.
        """
        for path in self._lease.paths():
            now = file_of(self._lease.after.get(path))
            before = self._before(path)
            left = None if now is None else self._left(path, now)
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

    def _left(self, path: bytes, now: Record) -> Content:
        """Return what the lease left; the snapshot says too little of a file that it did not read for its size."""
        with suppress(OSError), self._tree.parent(path) as (directory, name):
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            known = self._lease.kept.known.get(status.st_ino)
            if known is None and (unwritten := self._lease.kept.unwritten.get(status.st_ino)) is not None:
                known = unwritten[0]
            if status.st_size > MAX_READ_BYTES and known is not None and is_as_left(status, Mark(status.st_ino, known)):
                return self._content(directory, name)
        return Content.of(now.mode, now.blob)

    def _before(self, path: bytes) -> _Before:
        if (state := self._lease.states.get(path)) is not None:
            return self._of_state(state)
        record = file_of(self._lease.before.get(path))
        return _Before() if record is None else self._of_record(path, record)

    def _of_state(self, state: KeptState) -> _Before:
        if state.target is not None:
            return _Before(Content(blob_id(state.target), link=True), target=state.target)
        permissions = state.permissions & _PERMISSIONS
        executable = bool(permissions & 0o100)
        if state.number is None:
            return _Before(Content("", executable=executable), permissions=permissions, problem=_NOT_KEPT)
        name = os.fsencode(str(state.number))
        if not state.blocks or is_there(self._kept, name):
            stored = self._stored(self._kept, name)
        else:
            try:
                stored = self._rebuilt(state.number, state.path)
            except OSError as exc:
                if exc.errno not in _PROBLEMS:
                    raise
                problem = _PROBLEMS[exc.errno]
                return _Before(Content("", executable=executable), permissions=permissions, problem=problem)
        content = self._content(self._fd, b"%d" % stored)
        return _Before(Content(content.blob, executable=executable), stored, None, permissions, state.modified_ns)

    def _of_record(self, path: bytes, record: Record) -> _Before:
        content = Content.of(record.mode, record.blob)
        usual = 0o755 if record.mode == EXECUTABLE else 0o644
        permissions = (usual if record.permissions is None else record.permissions) & _PERMISSIONS
        data = self._blobs.blob(record.blob, limit=MAX_STORED_BYTES)
        if record.mode == SYMLINK:
            return _Before(content, target=data, problem="" if data is not None else _NOT_KEPT)
        if data is not None and not is_stand_in(data):
            return _Before(content, self._stored_data(data), None, permissions)
        # Too large for a snapshot, but perhaps it was given another name only.
        place = self._by_blob.get(record.blob)
        if place is not None and (found := self._tree.look(place).content) is not None and found.blob == record.blob:
            with self._tree.parent(place) as (directory, name):
                return _Before(content, self._stored(directory, name), None, permissions)
        if (mark := self._renamed.get(path)) is not None:
            with suppress(OSError):
                stored = self._moved(path, mark)
                content = Content(self._content(self._fd, b"%d" % stored).blob, executable=content.executable)
                return _Before(content, stored, None, permissions, mark.signature.modified_ns)
        return _Before(content, None, None, permissions, problem=_NOT_KEPT)

    def _content(self, directory: int, name: bytes) -> Content:
        record = read_record(directory, name, self._tree.salt, limit=MAX_LOOK_BYTES)
        return Content.of(record.mode, record.blob)

    def _rebuilt(self, number: int, path: bytes) -> int:
        """Store what a file held of which blocks are kept.

        Raises:
            OSError: as ``rebuild``.
        """
        return self._made(lambda target: rebuild(self._kept, number, self._files, path, target))

    def _moved(self, path: bytes, mark: Mark) -> int:
        """Store what a file holds that the lease has only given another name.

        Raises:
            OSError: as ``copy_as_left``.
        """
        return self._made(lambda target: copy_as_left(self._files, path, mark, mark.signature.size, target))

    def _stored(self, directory: int, name: bytes) -> int:
        source = os.open(name, _READ, dir_fd=directory)
        try:
            return self._made(lambda target: copy_content(source, target, os.fstat(source).st_size))
        finally:
            os.close(source)

    def _stored_data(self, data: bytes) -> int:
        def write(target: int) -> None:
            with open(target, "wb", closefd=False) as file:
                file.write(data)

        return self._made(write)

    def _made(self, write: Callable[[int], object]) -> int:
        """Return the number of a content that ``write`` has put into an open file; one that fails is removed."""
        number, self._next = self._next, self._next + 1
        target = os.open(str(number), _CREATE, 0o600, dir_fd=self._fd)
        try:
            write(target)
            self._syncing.add(target)
        except OSError:
            os.unlink(str(number), dir_fd=self._fd)
            raise
        finally:
            os.close(target)
        return number
