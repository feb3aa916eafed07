"""Opening names strictly beneath a descriptor, following no link: ``openat2``, or a walk where it is missing."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

Opener = Callable[[int, bytes, int], int]
"""``opener(dir_fd, relative_path, flags)`` returns a descriptor; the path holds neither ``..`` nor a leading ``/``."""

DIRECTORY_PATH: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC

_SYS_OPENAT2: Final = 437  # the same number on every architecture
_RESOLVE_NO_XDEV: Final = 0x01
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_NO_SYMLINKS: Final = 0x04
_RESOLVE_BENEATH: Final = 0x08
_RENAME_NOREPLACE: Final = 1
_RENAME_EXCHANGE: Final = 2
# EAGAIN means that a rename somewhere raced with the lookup; a peer that renames in a loop must not keep us here.
_MAX_RETRIES: Final = 64

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


# syscall() is variadic: without these types the upper half of each argument would be garbage.
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]


_HOW_BYTES: Final = ctypes.sizeof(_OpenHow)


@functools.cache
def _how(flags: int) -> ctypes.Array[ctypes.c_char]:
    """Return the kernel's view of ``flags``, which it only reads; the callers know a handful of them."""
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_XDEV
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    return ctypes.create_string_buffer(bytes(how), _HOW_BYTES)


def open_beneath(dir_fd: int, path: bytes, flags: int) -> int:
    """Open an existing name below ``dir_fd`` by ``openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV)``.

    Args:
        dir_fd: descriptor of the directory that is never left.
        path: relative path, ``b"."`` for the directory itself.
        flags: ``os.O_*`` without ``O_CREAT``; close-on-exec is added.

    Raises:
        OSError: as ``openat2(2)``; ``ELOOP`` for a link in any component, ``EXDEV`` for a way out or a mount in it.
    """
    how = _how(flags)
    code = errno.EAGAIN
    for _ in range(_MAX_RETRIES):
        fd: int = _syscall(_SYS_OPENAT2, dir_fd, path, how, _HOW_BYTES)
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code))


def walk_beneath(dir_fd: int, path: bytes, flags: int) -> int:
    """Open an existing name below ``dir_fd`` one component at a time, none of which may be a link.

    Each step starts at the descriptor of the last, so a swapped component can lead only to another real directory
    below it. Arguments and errors are those of ``open_beneath``; a link among the directories is ``ENOTDIR``, and a
    mount is entered: callers have to know where there is one (``nested_mounts``).
    """
    *directories, last = [part for part in path.split(b"/") if part not in (b"", b".")] or [b"."]
    if last == b".." or b".." in directories:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    current = dir_fd
    try:
        for name in directories:
            below = os.open(name, DIRECTORY_PATH | os.O_NOFOLLOW, dir_fd=current)
            if current != dir_fd:
                os.close(current)
            current = below
        return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
    finally:
        if current != dir_fd:
            os.close(current)


def open_real(path: Path, flags: int) -> int:
    """Open the directory that the real path ``path`` names, and no other that a link has put in its place since.

    Raises:
        OSError: as ``open(2)``; ``ENOTDIR`` for a link in any component.
    """
    top = os.open("/", DIRECTORY_PATH)
    try:
        return walk_beneath(top, os.fsencode(path), flags | os.O_DIRECTORY)
    finally:
        os.close(top)


@functools.cache
def choose_opener() -> Opener:
    """Return ``open_beneath`` where the kernel (5.6) and its seccomp filters allow it, else ``walk_beneath``."""
    if not sys.platform.startswith("linux"):
        return walk_beneath
    root = os.open("/", DIRECTORY_PATH)
    try:
        os.close(open_beneath(root, b".", DIRECTORY_PATH))
    except OSError:
        return walk_beneath
    finally:
        os.close(root)
    return open_beneath


def exchange(old_dir: int, old: bytes, new_dir: int, new: bytes) -> None:
    """Exchange two existing names in one step (``renameat2(RENAME_EXCHANGE)``).

    Raises:
        OSError: as ``renameat2(2)``; ``EINVAL`` or ``ENOSYS`` where the file system or libc has no such thing.
    """
    renameat2 = getattr(_libc, "renameat2", None)
    if renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if renameat2(old_dir, old, new_dir, new, _RENAME_EXCHANGE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def rename_noreplace(old_dir: int, old: bytes, new_dir: int, new: bytes) -> None:
    """Rename ``old`` in ``old_dir`` to ``new`` in ``new_dir``, which must not exist.

    Atomic by ``renameat2(RENAME_NOREPLACE)``; a file system or libc without it gets a check before a plain rename.

    Raises:
        OSError: as ``renameat2(2)``; ``EEXIST`` where ``new`` exists.
    """
    renameat2 = getattr(_libc, "renameat2", None)
    if renameat2 is not None:
        if renameat2(old_dir, old, new_dir, new, _RENAME_NOREPLACE) == 0:
            return
        code = ctypes.get_errno()
        if code not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(code, os.strerror(code))
    try:
        os.stat(new, dir_fd=new_dir, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(old, new, src_dir_fd=old_dir, dst_dir_fd=new_dir)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
