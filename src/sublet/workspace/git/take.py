"""Taking a file into the delegator's repository that an executor has written: looked at, and put in place as our own.

What takes the place is a copy, so that no handle and no other name of the client's reaches it after it was looked at.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from sublet.disk.openat2 import open_beneath, rename_noreplace
from sublet.disk.plain_file import read_beginning
from sublet.protocol.patterns import Pattern
from sublet.workspace.git.index import MAX_INDEX_BYTES, checked_index
from sublet.workspace.git.objects import MAX_OBJECT_BYTES, check_object
from sublet.workspace.git.ref_names import (
    MAX_PACKED_BYTES,
    MAX_REF_BYTES,
    REPLACE,
    check_noted,
    check_packed,
    check_reference,
    replacements,
)
from sublet.workspace.git.rules import HEAD, INDEX, NOTED, PACKED, REFS
from sublet.workspace.viewpath import Parts, refused

MAX_CONFIG_BYTES: Final = 1024 * 1024
QUICK_BYTES: Final = 256 * 1024
"""A file of this size is looked at in a few milliseconds."""

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_REPLACED: Final = 1_000
"""Replacements of the delegator's own that are known when references are packed."""
_DRAFT: Final = b".sublet-taken.lock"
"""A name that no client can write (``git.rules``), so that nobody has it open, and that git takes for nothing."""
_SHA256 = Pattern(rb"(?im)^[^#;\n]*\bobjectformat\s*=\s*\"?sha256")
_SHA1_BYTES: Final = 20
_SHA256_BYTES: Final = 32


class Guards(Protocol):
    """The rules of a lease, as far as they matter to what is taken over."""

    def hidden(self, parts: Sequence[bytes]) -> bool:
        """``ViewRules.hidden``."""

    def locked(self, parts: Sequence[bytes]) -> bool:
        """``ViewRules.locked``."""


class Looking:
    """A file that is given to a repository, open until it was looked at, which may take a while: ``look`` does it.

    Args:
        fd: of the file; it belongs to this object from now on.
        parts: where it shall go: an index or an object of a repository, as ``git.rules.checked`` tells.
        id_bytes: length of an object's name in that repository.
        before: of an index, or of packed references, that are to be replaced; it belongs to this object from now on.
        rules: those of the lease.
        replaced: lines of the replacements that the delegator's repository has as files of their own.
        repository: of an index, the directory that has the shared part of the one before, where that is split; it
            belongs to this object from now on.
    """

    def __init__(
        self,
        fd: int,
        parts: Parts,
        id_bytes: int,
        before: int | None,
        rules: Guards,
        replaced: frozenset[bytes] = frozenset(),
        repository: int | None = None,
    ) -> None:
        self.given = os.fstat(fd)
        self.cleared: tuple[bytes, ...] = ()
        """Files that the index had git not look at, which was not taken over."""
        self._before = before
        self._fd = fd
        self._parts = parts
        self._id_bytes = id_bytes
        self._rules = rules
        self._replaced = replaced
        self._repository = repository
        self._held = [held for held in (fd, before, repository) if held is not None]
        self._failed: OSError | None = None
        self._content: bytes | None = None

    @property
    def name(self) -> bytes:
        """The name that it shall have."""
        return self._parts[-1]

    def look(self) -> None:
        """Read the file and make sure of its content; it is closed afterwards. May run in any thread.

        Raises:
            OSError: ``EACCES`` for what is not what it has to be, ``EFBIG`` for what is too large.
        """
        try:
            self._look()
        except OSError as exc:
            self._failed = exc
            raise
        finally:
            self.drop()

    def drop(self) -> None:
        """Close all that is open, where nobody will look any more. Idempotent."""
        held, self._held = self._held, []
        for fd in held:
            os.close(fd)

    def _look(self) -> None:
        kind, bound = _kind(self._parts)
        before = b"" if self._before is None else read_beginning(self._before, bound, close=False)
        if not stat.S_ISREG(self.given.st_mode):
            raise refused(errno.EACCES)
        if self.given.st_size > bound:
            raise refused(errno.EFBIG)
        content = read_beginning(self._fd, bound, close=False)
        if kind == INDEX:
            good = checked_index(content, self._id_bytes, before, self._shared, self._guarded)
            content, self.cleared = good.content, good.cleared
        elif kind == PACKED:
            check_packed(content, replacements(before) | self._replaced)
        elif kind == REFS:
            check_reference(content)
        elif kind in NOTED:
            check_noted(content)
        else:
            check_object(content, self._parts[-2] + self._parts[-1])
        self._content = content

    def _shared(self, name: str) -> bytes:
        """Return the shared part of the delegator's index; nothing where there is none."""
        try:
            fd = os.open(f"sharedindex.{name}", _READ, dir_fd=self._repository)
        except OSError:
            return b""
        return read_beginning(fd, MAX_INDEX_BYTES)

    def _guarded(self, path: bytes) -> bool:
        parts = tuple(path.split(b"/"))
        return self._rules.hidden(parts) or self._rules.locked(parts)

    def content(self, now: os.stat_result) -> bytes:
        """Return what ``look`` found good.

        Raises:
            OSError: what ``look`` has raised; ``EAGAIN`` where the file is another ``now``.
        """
        if self._failed is not None:
            raise self._failed
        if self._content is None or not os.path.samestat(self.given, now):
            raise refused(errno.EAGAIN)
        return self._content


def looking(source_dir: int, source: bytes, target_dir: int, parts: Parts, rules: Guards) -> Looking:
    """Return what looks at ``source``, which is given for ``parts``; its ``look`` or ``drop`` has to be called.

    Args:
        source_dir: the open directory that holds it.
        source: its name there.
        target_dir: the open directory that it goes to.
        parts: where it shall go.
        rules: those of the lease.

    Raises:
        OSError: it can't be opened; ``EACCES`` where a link is to be replaced, whose target is the delegator's.
    """
    kind, _ = _kind(parts)
    id_bytes = _SHA256_BYTES if kind == INDEX and _SHA256.search(_config(target_dir)) else _SHA1_BYTES
    before = _before(target_dir, parts[-1]) if kind in (INDEX, PACKED) else None
    repository = None
    try:
        fd = os.open(source, _READ, dir_fd=source_dir)
        if kind == INDEX:
            repository = os.open(b".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=target_dir)
    except OSError:
        if before is not None:
            os.close(before)
        raise
    replaced = _replaced(target_dir) if kind == PACKED else frozenset()
    return Looking(fd, parts, id_bytes, before, rules, replaced, repository)


def _before(directory: int, name: bytes) -> int | None:
    """Open what is to be replaced; None where there is nothing.

    Raises:
        OSError: ``EACCES`` where it is no regular file.
    """
    try:
        before = os.open(name, _READ, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError:
        raise refused(errno.EACCES) from None
    if not stat.S_ISREG(os.fstat(before).st_mode):
        os.close(before)
        raise refused(errno.EACCES)
    return before


def _kind(parts: Parts) -> tuple[bytes, int]:
    """Return what is looked at (an index, packed references, a reference, or else an object), and its bound."""
    below = tuple(parts[1:])
    if below == (INDEX,):
        return INDEX, MAX_INDEX_BYTES
    if below == (PACKED,):
        return PACKED, MAX_PACKED_BYTES
    if below == (HEAD,) or below[0] == REFS:
        return REFS, MAX_REF_BYTES
    if below[0] in NOTED:
        return below[0], MAX_REF_BYTES
    return b"", MAX_OBJECT_BYTES


def _replaced(repository: int) -> frozenset[bytes]:
    """Return, as packed references have them, the replacements that a repository has as files of their own."""
    found: set[bytes] = set()
    with suppress(OSError):
        directory = open_beneath(repository, REFS + b"/" + REPLACE, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in os.listdir(directory)[:MAX_REPLACED]:
                with suppress(OSError):
                    value = read_beginning(os.open(name, _READ, dir_fd=directory), MAX_REF_BYTES).strip()
                    found.add(b"%s %s/%s/%s" % (value, REFS, REPLACE, os.fsencode(name)))
        finally:
            os.close(directory)
    return frozenset(found)


def take(source_dir: int, source: bytes, target_dir: int, looked: Looking, *, replace: bool) -> os.stat_result:
    """Put what is good of ``source`` where it shall go; ``source`` stays.

    Args:
        source_dir: the open directory that holds the new file.
        source: its name there.
        target_dir: the open directory that it goes to.
        looked: what has looked at it.
        replace: whether there may be one before.

    Returns:
        The status of what has taken the place.

    Raises:
        OSError: ``EAGAIN`` where ``source`` is another file than the one looked at, ``EEXIST`` unless ``replace``;
            others where it can't be written. All is as before then.
    """
    given, name = looked.given, looked.name
    content = looked.content(os.stat(source, dir_fd=source_dir, follow_symlinks=False))
    rename: Callable[..., None] = _rename if replace else rename_noreplace
    try:
        draft = os.open(_DRAFT, _WRITE, given.st_mode & 0o777, dir_fd=target_dir)
    except FileExistsError:  # of a process that was killed
        os.unlink(_DRAFT, dir_fd=target_dir)
        draft = os.open(_DRAFT, _WRITE, given.st_mode & 0o777, dir_fd=target_dir)
    try:
        with os.fdopen(draft, "wb") as out:
            out.write(content)
            out.flush()
            # As old as what was given: git takes files that are younger than the index for changed, and looks again.
            os.utime(draft, ns=(given.st_atime_ns, given.st_mtime_ns))
            taken = os.fstat(draft)
        rename(target_dir, _DRAFT, target_dir, name)
    except OSError:
        os.unlink(_DRAFT, dir_fd=target_dir)
        raise
    return taken


def _rename(old_dir: int, old: bytes, new_dir: int, new: bytes) -> None:
    os.rename(old, new, src_dir_fd=old_dir, dst_dir_fd=new_dir)


def _config(repository: int) -> bytes:
    """Return the repository's own configuration, which no client can change."""
    try:
        fd = os.open(b"config", _READ, dir_fd=repository)
    except OSError:
        return b""
    return read_beginning(fd, MAX_CONFIG_BYTES)
