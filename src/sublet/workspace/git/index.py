"""The index that an executor gives the delegator's repository: looked at before it takes its place, and written anew.

Git checks the paths of an index when it adds them, not when it reads them: with an index of somebody else's making,
``git checkout .`` writes ``.git/hooks/pre-commit`` or a file outside of the directory. Its optional extensions are
trusted as they are, too: the next commit takes whole trees from one, and ``git status`` leaves out what another says is
unchanged. So paths and modes are checked here, and extensions that git can do without are dropped; those that it can't
do without (a split or a sparse index) are refused, since they stand for entries that are not in the file. Two marks of
an entry have git never look at its file, so that a change of it stays unseen: only those of the delegator's own index
stay (DESIGN 4.6).
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from sublet.protocol.patterns import Pattern
from sublet.workspace.git.split_index import LINK, KnownEntry, merged
from sublet.workspace.viewpath import refused

MAX_INDEX_BYTES: Final = 32 * 1024 * 1024
MAX_PATH_BYTES: Final = 4_096
MAX_ALL_PATHS_BYTES: Final = 32 * 1024 * 1024
"""Of the paths together: prefixes that version 4 leaves out are counted where they are."""

_SHA256_BYTES: Final = 32
_HEADER: Final = 12
_MAX_VARINT: Final = 4
_LENGTH: Final = 0xFFF
_NUMBERS: Final = 40
"""Bytes of times, inode, mode and the like, before an entry's object id."""
_MODE_AT: Final = 24
_EXTENDED: Final = 0x4000
_ASSUME_VALID: Final = 0x8000
_SKIP_WORKTREE: Final = 0x4000
"""Of the extended flags."""
_INTENT_TO_ADD: Final = 0x2000
"""Of the extended flags. It hides nothing: git takes such a file for changed, whatever it holds."""
_MODES: Final = frozenset({0o100644, 0o100664, 0o100755, 0o120000, 0o160000})
"""Files, links and repositories. A directory would stand for all that its tree holds, which nobody has looked at."""
# Some file systems take .git for what is written with invisible characters, other letters or an ending.
_UNSEEN: Final = rb"(?:\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf)*"
_GIT: Final = _UNSEEN.join((rb"", rb"\.", rb"g", rb"i", rb"t", rb"")) + rb"|git~1"
_BAD_PATH = Pattern(rb"(?:^|[/\\\0])(?:|\.|\.\.|(?:" + _GIT + rb")[ .]*(?::[^/\\\0]*)?)(?:$|[/\\\0])", ignore_case=True)


@dataclass(frozen=True, slots=True)
class GoodIndex:
    """An index that may take its place, and the paths that it had git not look at, which it does not any more."""

    content: bytes
    cleared: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry: its path, where its flags begin, and both kinds of them."""

    path: bytes
    at: int
    flags: int
    extended: int

    @property
    def unseen(self) -> bool:
        """Whether git does not look at the file."""
        return bool(self.flags & _ASSUME_VALID or self.extended & _SKIP_WORKTREE)


def checked_index(
    content: bytes,
    id_bytes: int,
    before: bytes | None = None,
    shared: Callable[[str], bytes] = lambda _: b"",
    guarded: Callable[[bytes], bool] = lambda _: False,
) -> GoodIndex:
    """Return ``content`` without what git can do without, and without marks that hide changes.

    Args:
        content: of an index file.
        id_bytes: of an object's name in the repository: 20 or 32.
        before: of the index that it is to replace, whose marks are the delegator's own.
        shared: returns the shared part of the delegator's index, by its name, where that one is split.
        guarded: tells of a path whether the lease hides or locks it: then the entry may go, but neither come nor
            change, since the delegator's next ``git checkout`` would write the file.

    Raises:
        OSError: ``EACCES`` for what is no index of such a repository, has paths that git would not add, or an entry of
            a guarded path that the delegator's own index does not have.
    """
    version, count = int.from_bytes(content[4:8], "big"), int.from_bytes(content[8:_HEADER], "big")
    end = len(content) - id_bytes
    if content[:4] != b"DIRC" or version not in (2, 3, 4) or count * (_NUMBERS + id_bytes + 2) > end:
        raise refused(errno.EACCES)
    entries, after = _entries(content[:end], version, count, id_bytes)
    if any(int.from_bytes(_blob(content, entry, id_bytes)[:4], "big") not in _MODES for entry in entries):
        raise refused(errno.EACCES)
    at = after
    while at < end:
        kind, size = content[at : at + 4], int.from_bytes(content[at + 4 : at + 8], "big")
        at += 8 + size
        if at > end or not kind[:1].isupper():  # needed to make sense of the rest, which then is not all
            raise refused(errno.EACCES)
    named = [entry.path for entry in entries]
    if named and _BAD_PATH.search(b"\0".join(named)):
        raise refused(errno.EACCES)
    earlier = [] if before is None else known_entries(before, id_bytes, shared)
    own = {entry.path for entry in earlier if entry.unseen}
    _check_guarded(content, entries, earlier, id_bytes, guarded)
    hiding = [entry for entry in entries if entry.unseen and entry.path not in own]
    good = _cleared(content[:after], hiding)
    digest = hashlib.sha256(good) if id_bytes == _SHA256_BYTES else hashlib.sha1(good, usedforsecurity=False)
    return GoodIndex(good + digest.digest(), tuple(sorted({entry.path for entry in hiding})))


def unsafe_path(path: bytes) -> bool:
    """Tell whether git would refuse to add ``path``: it climbs, or has a component that some file system takes for
    ``.git``.
    """
    return _BAD_PATH.search(path) is not None


def _check_guarded(
    content: bytes,
    entries: list[_Entry],
    earlier: Iterable[KnownEntry],
    id_bytes: int,
    guarded: Callable[[bytes], bool],
) -> None:
    """Refuse entries of guarded paths that are not exactly those of the delegator's own index."""
    suspects = [entry for entry in entries if guarded(entry.path)]
    if suspects:
        known = {(entry.path, entry.blob) for entry in earlier}
        if any((entry.path, _blob(content, entry, id_bytes)) not in known for entry in suspects):
            raise refused(errno.EACCES)


def _blob(content: bytes, entry: _Entry, id_bytes: int) -> bytes:
    """Return the mode of an entry and the name of its object."""
    start = entry.at - id_bytes - _NUMBERS
    return content[start + _MODE_AT : start + _MODE_AT + 4] + content[entry.at - id_bytes : entry.at]


def known_entries(index: bytes, id_bytes: int, shared: Callable[[str], bytes]) -> list[KnownEntry]:
    """Return the entries of the delegator's own index; none where it can't be read.

    Args:
        index: the content of the file.
        id_bytes: of an object's name.
        shared: returns the shared part of a split index, by its name.
    """
    try:
        entries, after = _listed(index, id_bytes)
        if (link := _link(index, after, id_bytes)) is None:
            return entries
        part = shared(link[:id_bytes].hex())
        return merged(_listed(part, id_bytes)[0] if part else [], entries, link[id_bytes:])
    except OSError:
        return []


def _listed(index: bytes, id_bytes: int) -> tuple[list[KnownEntry], int]:
    """Return the entries of an index file, and where they end.

    Raises:
        OSError: ``EACCES`` for what is no index.
    """
    version, count = int.from_bytes(index[4:8], "big"), int.from_bytes(index[8:_HEADER], "big")
    if index[:4] != b"DIRC" or version not in (2, 3, 4) or count * (_NUMBERS + id_bytes + 2) > len(index):
        raise refused(errno.EACCES)
    entries, after = _entries(index, version, count, id_bytes)
    return [KnownEntry(entry.path, _blob(index, entry, id_bytes), entry.unseen) for entry in entries], after


def _link(index: bytes, at: int, id_bytes: int) -> bytes | None:
    """Return what an index says of its shared part; None where it has none."""
    while at + 8 <= len(index) - id_bytes:
        kind, size = index[at : at + 4], int.from_bytes(index[at + 4 : at + 8], "big")
        if kind == LINK:
            return index[at + 8 : at + 8 + size]
        at += 8 + size
    return None


def _cleared(entries: bytes, hiding: list[_Entry]) -> bytes:
    """Return the entries without the marks of ``hiding``."""
    cleared = bytearray(entries)
    for entry in hiding:
        cleared[entry.at : entry.at + 2] = (entry.flags & ~_ASSUME_VALID).to_bytes(2, "big")
        if entry.flags & _EXTENDED:
            cleared[entry.at + 2 : entry.at + 4] = (entry.extended & ~_SKIP_WORKTREE).to_bytes(2, "big")
    return bytes(cleared)


def _entries(content: bytes, version: int, count: int, id_bytes: int) -> tuple[list[_Entry], int]:
    """Return all entries, and where they end."""
    entries: list[_Entry] = []
    at, total, path = _HEADER, 0, b""
    for _ in range(count):
        start = at
        at += _NUMBERS + id_bytes + 2
        place = at - 2
        flags, extended = int.from_bytes(content[place:at], "big"), 0
        if flags & _EXTENDED:
            extended = int.from_bytes(content[at : at + 2], "big")
            if version == 2 or extended & ~(_SKIP_WORKTREE | _INTENT_TO_ADD):
                raise refused(errno.EACCES)
            at += 2
        cut = 0
        if version == 4:
            cut, at = _varint(content, at)
        stop = content.find(b"\0", at, at + MAX_PATH_BYTES + 1)
        if stop < 0 or cut > len(path):
            raise refused(errno.EACCES)
        path = path[: len(path) - cut] + content[at:stop] if version == 4 else content[at:stop]
        length = flags & _LENGTH
        if length != min(len(path), _LENGTH) or len(path) > MAX_PATH_BYTES:
            raise refused(errno.EACCES)  # git would go by the length, and read another path than this
        at = stop + 1 if version == 4 else start + ((stop - start + 8) & ~7)
        total += len(path)
        if total > MAX_ALL_PATHS_BYTES:
            raise refused(errno.EFBIG)
        entries.append(_Entry(path, place, flags, extended))
    if at > len(content):
        raise refused(errno.EACCES)
    return entries, at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number as git writes it in an index, and where it ends."""
    value = -1
    for place in range(at, at + _MAX_VARINT):
        byte = content[place : place + 1]
        if not byte:
            break
        value = (value + 1) << 7 | byte[0] & 0x7F
        if byte[0] < 0x80:
            return value, place + 1
    raise refused(errno.EACCES)
