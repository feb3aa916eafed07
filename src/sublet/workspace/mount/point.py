"""The empty directories that mounts cover, made so that a lost mount is never taken for an empty workspace (case C10).

While something is mounted on it, the directory below has no permissions at all, and is immutable where the kernel and
our rights allow. If the mount goes away, whoever looks gets "permission denied" or "operation not permitted" instead of
a place to write results into. As an ordinary user it is the mode that holds: nothing is read or made there by accident,
though the agent, which is the owner, could change the mode on purpose. As root it is the flag.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import struct
from pathlib import Path

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.workspace.mount.table import is_mounted

_FS_IOC_GETFLAGS = 0x80086601
_FS_IOC_SETFLAGS = 0x40086602
_FS_IMMUTABLE = 0x10


class MountPoint:
    """A checked, empty directory directly below the mount root, held open from before it is mounted on.

    The descriptor keeps meaning the directory itself, so what is mounted over it is never touched through this object.
    """

    def __init__(self, path: Path, root: Path) -> None:
        """Open ``path``.

        Raises:
            SubletError: ``MOUNTPOINT_DENIED`` for a path that is not absolute, not directly below ``root``, a link,
                not a directory, not empty, or mounted on already (AWCP 4.5).
        """
        self.path = path
        if not path.is_absolute() or ".." in path.parts:
            raise denied(path, "it is not an absolute path")
        if path.parent != root:
            raise denied(path, f"it is not directly below the mount root {root}")
        if is_mounted(path):
            raise denied(path, "something is mounted there already")
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise denied(path, f"it can't be opened as a directory ({error.strerror})") from error
        try:
            if os.listdir(self._descriptor):
                raise denied(path, "it is not empty")
        except BaseException:
            self.close()
            raise

    def harden(self) -> bool:
        """Make the directory useless to whoever sees it without its mount. Call once the mount covers it.

        Returns:
            Whether that holds for this user: by the mode, or for root by the flag.
        """
        with contextlib.suppress(OSError):
            os.fchmod(self._descriptor, 0)
        _set_immutable(self._descriptor, True)
        if os.geteuid() == 0:
            return _is_immutable(self._descriptor)
        return stat.S_IMODE(os.fstat(self._descriptor).st_mode) == 0

    def soften(self) -> None:
        """Undo ``harden``; quiet once closed."""
        if self._descriptor >= 0:
            _soften(self._descriptor)

    def close(self) -> None:
        """Let go of the directory. Safe to call again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def denied(path: Path, reason: str) -> SubletError:
    """Return the error that says why nothing will be mounted at ``path``."""
    return SubletError(
        ErrorCode.MOUNTPOINT_DENIED,
        f"nothing is mounted at {path}: {reason}",
        "Mount points are empty directories below the mount root; 'sublet doctor' lists leftovers.",
    )


def remove_empty(name: str, root_descriptor: int) -> bool:
    """Remove the empty directory ``name`` of an open root, hardened or not, and tell whether it is gone.

    Links are not followed and directories that hold something stay.
    """
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(name, os.O_RDONLY | flags, dir_fd=root_descriptor)
    except PermissionError:
        # Mode 0 keeps its owner from opening it too. The path through /proc changes exactly the inode that is held.
        with contextlib.suppress(OSError):
            held = os.open(name, os.O_PATH | flags, dir_fd=root_descriptor)
            try:
                os.chmod(f"/proc/self/fd/{held}", 0o700)
            finally:
                os.close(held)
    except OSError:
        return False
    else:
        try:
            if os.listdir(descriptor):
                return False
            _soften(descriptor)
        except OSError:
            return False
        finally:
            os.close(descriptor)
    try:
        os.rmdir(name, dir_fd=root_descriptor)
    except OSError:
        return False
    return True


def _soften(descriptor: int) -> None:
    _set_immutable(descriptor, False)
    with contextlib.suppress(OSError):
        os.fchmod(descriptor, 0o700)


def _is_immutable(descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        flags = int(struct.unpack("l", fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, struct.pack("l", 0)))[0])
        return bool(flags & _FS_IMMUTABLE)
    return False


def _set_immutable(descriptor: int, immutable: bool) -> None:
    """Set or clear the flag, quietly where the file system or our rights do not allow it."""
    with contextlib.suppress(OSError):
        flags = int(struct.unpack("l", fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, struct.pack("l", 0)))[0])
        wanted = flags | _FS_IMMUTABLE if immutable else flags & ~_FS_IMMUTABLE
        if wanted != flags:
            fcntl.ioctl(descriptor, _FS_IOC_SETFLAGS, struct.pack("l", wanted))
