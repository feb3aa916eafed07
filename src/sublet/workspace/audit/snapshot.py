"""Read a workspace into a manifest and blobs, without following a link and without trusting a time too young."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sublet.policy.limits import MAX_FILES
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit.manifest import ROOT, Manifest, Record, Stamp
from sublet.workspace.audit.path_tree import PathTree
from sublet.workspace.audit.shadow_git import DIRECTORY, EXECUTABLE, PLAIN, SYMLINK, blob_id
from sublet.workspace.export import ViewRules
from sublet.workspace.view.walk import OPEN_DIRECTORY, Budget, Directory, Unread, WalkOverrunError, open_root, walk

MAX_LENT_ENTRIES: Final = MAX_FILES
"""Names of a directory that is lent, directories among them."""
MAX_ENTRIES: Final = MAX_LENT_ENTRIES + MAX_FILES
"""Names that are read after a lease: all that it may add have room, however long they are and however deep they lie."""
MAX_SECONDS: Final = 300.0
PERMISSIONS: Final = 0o7777
"""The bits of a mode that are compared."""
MAX_STORED_BYTES: Final = 4 * 1024 * 1024
"""Larger files are kept as size and digest only: a change shows, but has no patch."""
MAX_READ_BYTES: Final = 1024 * 1024 * 1024
"""Still larger files are not even read, only their size and times are compared: a sparse file of terabytes costs an
executor nothing, and would keep us reading for hours."""
MAX_READ_SECONDS: Final = 240.0
"""Time for reading contents; what is left then is compared by size and times only."""
SETTLED_NS: Final = 2_000_000_000
"""A file whose times are younger may change again within the same tick, so it is read anew next time."""

STAND_IN_BYTES: Final = 4096
"""No stand-in for a content is longer."""

_CHUNK = 1024 * 1024
_STAND_IN = b"\0sublet "
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Store = Callable[[bytes], None]


@dataclass(slots=True)
class Taken:
    """A manifest, and the paths that could not be read with the reason."""

    manifest: PathTree[Record] = field(default_factory=PathTree)
    unread: list[tuple[bytes, str]] = field(default_factory=list)


def take(
    root: Path | int, rules: ViewRules, known: Manifest, salt: bytes, store: Store, most: int = MAX_ENTRIES
) -> Taken:
    """Walk the export of ``root`` and return what it holds.

    Args:
        root: the workspace, or a descriptor of its root.
        rules: which names it exports.
        known: an earlier manifest of the same workspace; files with an equal trusted stamp are not read.
        salt: secret of this workspace, so that no file can be made to look like the stand-in for another.
        store: called with each blob that ``known`` does not have under the same path.
        most: names that it may hold.

    Raises:
        SubletError: ``UNAVAILABLE`` where the root can't be read or the walk goes beyond its bounds.
    """
    return _Reader(known, salt, store).read(root, rules, most)


def read_record(directory_fd: int, name: bytes, salt: bytes, *, limit: int) -> Record:
    """Return what a snapshot would hold of one name, which is no directory, and of no more than ``limit`` bytes.

    Raises:
        OSError: there is none, or it can't be read within the bounds.
    """
    st = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    return _Reader({}, salt, lambda _: None, limit).record(directory_fd, name, name, st)


def is_stand_in(content: bytes | None) -> bool:
    """Tell whether a snapshot keeps this instead of what a file holds; None is more than a stand-in would be."""
    return content is not None and content.startswith(_STAND_IN)


class _Reader:
    """One reading of a workspace."""

    def __init__(self, known: Manifest, salt: bytes, store: Store, limit: int | None = None) -> None:
        self._known = known
        self._salt = salt
        self._store = store
        self._limit = MAX_READ_BYTES if limit is None else limit
        self._settled_before = time.time_ns() - SETTLED_NS
        self._deadline = time.monotonic() + MAX_READ_SECONDS
        self._taken = Taken()
        self._mounts: set[bytes] = set()
        self._directories: dict[int, Record] = {}

    def read(self, root: Path | int, rules: ViewRules, most: int) -> Taken:
        try:
            root_fd = open_root(root) if isinstance(root, Path) else os.open(".", OPEN_DIRECTORY, dir_fd=root)
        except OSError as exc:
            raise _unavailable(f"can't be read: {os.strerror(exc.errno or 0)}") from None
        try:
            for found in walk(root_fd, rules.without_repository(), Budget(most, MAX_SECONDS)):
                if isinstance(found, Unread):
                    self._taken.unread.append((b"/".join(found.parts), found.reason))
                else:
                    self._directory(found)
        except WalkOverrunError as exc:
            raise _unavailable(f"holds {exc}") from None
        finally:
            os.close(root_fd)
        self._carry_over()
        return self._taken

    def _directory(self, directory: Directory) -> None:
        self._mounts.update(b"/".join((*directory.parts, name)) for name in directory.mounts)
        if not directory.parts:
            self._taken.manifest[ROOT] = Record(DIRECTORY, "", None)
        above = b"".join(part + b"/" for part in directory.parts)
        for name, st in directory.entries:
            path = above + name
            if stat.S_ISDIR(st.st_mode):
                permissions = st.st_mode & PERMISSIONS
                self._taken.manifest[path] = self._directories.setdefault(
                    permissions, Record(DIRECTORY, "", None, permissions)
                )
                continue
            try:
                self._taken.manifest[path] = self.record(directory.fd, name, path, st)
            except FileNotFoundError:
                continue  # removed since its directory was listed
            except OSError as exc:
                self._taken.unread.append((path, exc.strerror or os.strerror(exc.errno or 0)))
                # Its times stand in for its content: they tell at least that it was changed.
                unread = self._stand_in(path, PLAIN, f"unreadable {Stamp.of(st)}")
                self._taken.manifest[path] = unread._replace(permissions=st.st_mode & PERMISSIONS)

    def record(self, directory_fd: int, name: bytes, path: bytes, st: os.stat_result) -> Record:
        """Return the record of one name, as ``st`` has it."""
        if stat.S_ISLNK(st.st_mode):
            return self._blob(path, SYMLINK, os.readlink(name, dir_fd=directory_fd), None)
        if not stat.S_ISREG(st.st_mode):
            return self._special(path, st)
        known = self._known.get(path)
        if known is not None and known.stamp is not None and known.stamp == Stamp.of(st):
            mode, permissions = _mode(st), st.st_mode & PERMISSIONS
            if (known.mode, known.permissions) == (mode, permissions):
                return known
            return known._replace(mode=mode, permissions=permissions)
        fd = os.open(name, _OPEN_FILE, dir_fd=directory_fd)
        try:
            return self._content(fd, path)
        finally:
            os.close(fd)

    def _content(self, fd: int, path: bytes) -> Record:
        """Read at most what the file holds now: one that grows for ever is cut, and read again next time.

        Raises:
            OSError: it can't be read, or not within the bounds.
        """
        st = os.fstat(fd)
        if not stat.S_ISREG(st.st_mode):
            return self._special(path, st)
        if st.st_size > self._limit:
            raise OSError(errno.EFBIG, f"larger than {self._limit >> 20} MiB, so only size and times are compared")
        young = max(st.st_mtime_ns, st.st_ctime_ns) >= self._settled_before
        stamp = None if young else Stamp.of(st)
        permissions = st.st_mode & PERMISSIONS
        if st.st_size <= MAX_STORED_BYTES:
            found = self._blob(path, _mode(st), b"".join(self._pieces(fd, st.st_size)), stamp)
            return found._replace(permissions=permissions)
        digest = hashlib.sha256()
        for piece in self._pieces(fd, st.st_size):
            digest.update(piece)
        found = self._stand_in(path, _mode(st), f"large {st.st_size} {digest.hexdigest()}", stamp)
        return found._replace(permissions=permissions)

    def _special(self, path: bytes, st: os.stat_result) -> Record:
        found = self._stand_in(path, PLAIN, f"special {stat.S_IFMT(st.st_mode):o}")
        return found._replace(permissions=st.st_mode & PERMISSIONS)

    def _pieces(self, fd: int, size: int) -> Iterator[bytes]:
        """Yield the first ``size`` bytes of the file, or what there is.

        Raises:
            OSError: as ``read(2)``; ``ETIME`` where the time for all contents is over.
        """
        while size > 0:
            if time.monotonic() > self._deadline:
                raise OSError(errno.ETIME, "no time was left to read it, so only size and times are compared")
            piece = os.read(fd, min(size, _CHUNK))
            if not piece:
                return
            yield piece
            size -= len(piece)

    def _stand_in(self, path: bytes, mode: int, text: str, stamp: Stamp | None = None) -> Record:
        # The NUL makes it binary for git, the salt keeps an executor from writing the same into a real file.
        return self._blob(path, mode, _STAND_IN + b"%s %s\n" % (self._salt, text.encode()), stamp)

    def _blob(self, path: bytes, mode: int, content: bytes, stamp: Stamp | None) -> Record:
        name = blob_id(content)
        known = self._known.get(path)
        if known is None or known.blob != name:
            self._store(content)
        return Record(mode, name, stamp)

    def _carry_over(self) -> None:
        """Keep what is known of what could not be entered or is mounted over: it must not pass for deleted."""
        closed = PathTree((path, True) for path in (*(path for path, _ in self._taken.unread), *self._mounts))
        if not closed:
            return
        for path, record in self._known.items():
            if path not in self._taken.manifest and (path in self._mounts or _is_below(path, closed)):
                self._taken.manifest[path] = record._replace(stamp=None)


def _is_below(path: bytes, directories: PathTree[bool]) -> bool:
    branch = directories.root
    for part in path.split(b"/")[:-1]:
        if part in branch.values:
            return True
        below = branch.below.get(part)
        if below is None:
            return False
        branch = below
    return False


def _mode(st: os.stat_result) -> int:
    return EXECUTABLE if st.st_mode & stat.S_IXUSR else PLAIN


def _unavailable(why: str) -> SubletError:
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"the workspace {why}, so it can't be audited",
        "Lend a smaller directory, all of which you can read.",
    )
