"""The references of a repository as files, read without git and without following a link, to tell which were moved."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sublet.disk.openat2 import DIRECTORY_PATH, open_beneath, open_real
from sublet.disk.plain_file import read_beginning
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_line
from sublet.workspace.git.rules import REPOSITORY

MAX_REFS: Final = 20_000
MAX_DEPTH: Final = 64
"""Directories below ``refs`` that are looked into, one in the other; none is made through a lease so deep."""
MAX_VALUE_BYTES: Final = 1_024
MAX_PACKED_BYTES: Final = 8 * 1024 * 1024

_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OBJECT = Pattern(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")

Refs = Mapping[bytes, bytes]
"""What each reference, ``HEAD`` among them, holds: an object's name, or ``ref: `` and another reference."""


@dataclass(frozen=True, slots=True)
class MovedRef:
    """A reference that was made, moved or deleted; ``old`` or ``new`` is empty where it was not there."""

    name: bytes
    old: bytes
    new: bytes


def read_refs(root: Path) -> dict[bytes, bytes]:
    """Return the references of the repository at ``root``, a real path, at most ``MAX_REFS``; none where it has none.

    Raises:
        OSError: it can't be read.
    """
    refs: dict[bytes, bytes] = {}
    try:
        top = open_real(root / os.fsdecode(REPOSITORY), DIRECTORY_PATH)
    except (FileNotFoundError, NotADirectoryError):
        return refs
    try:
        for name, value in _found(top):
            refs[name] = value
            if len(refs) >= MAX_REFS:
                break
    finally:
        os.close(top)
    return refs


def moved(before: Refs, after: Refs) -> list[MovedRef]:
    """Return what differs, in the order of the names."""
    names = sorted(before.keys() | after.keys())
    pairs = ((name, before.get(name, b""), after.get(name, b"")) for name in names)
    return [MovedRef(name, old, new) for name, old, new in pairs if old != new]


def shown(value: bytes) -> str | None:
    """Return what a reference holds in a form that is safe to show, None for nothing."""
    return clean_line(value.decode("utf-8", "replace"), 200) or None


def _found(top: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield every reference; of one that is packed and loose, the loose one comes last and counts."""
    for line in _read(top, b"packed-refs", MAX_PACKED_BYTES).splitlines():
        value, _, name = line.partition(b" ")
        if _OBJECT.fullmatch(value) and name:
            yield name, value
    for name in (b"HEAD",):
        value = _read(top, name, MAX_VALUE_BYTES).strip()
        if value:
            yield name, value
    yield from _loose(top)


def _loose(top: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the references that are files of their own, however deep they lie, following no link."""
    todo = [b"refs"]
    while todo:
        path = todo.pop()
        try:
            directory = open_beneath(top, path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            for name in sorted(map(os.fsencode, os.listdir(directory)), reverse=True):
                if _is_directory(directory, name):
                    if path.count(b"/") < MAX_DEPTH:
                        todo.append(path + b"/" + name)
                elif value := _read(directory, name, MAX_VALUE_BYTES).strip():
                    yield path + b"/" + name, value
        finally:
            os.close(directory)


def _is_directory(directory: int, name: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:  # it has just gone
        return False


def _read(directory: int, name: bytes, limit: int) -> bytes:
    """Return the beginning of a regular file; nothing where there is none."""
    try:
        fd = os.open(name, _OPEN, dir_fd=directory)
    except OSError:
        return b""
    return read_beginning(fd, limit)
