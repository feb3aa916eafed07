"""Whether a directory may take names for the same that differ in the case of letters."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from pathlib import Path
from typing import Final

from sublet.workspace.mount.table import file_system_of

_FOLDING: Final = frozenset(
    b"vfat msdos exfat ntfs ntfs3 fuseblk cifs smb3 smbfs hfs hfsplus apfs 9p drvfs vboxsf virtiofs".split()
    + b"fuse.vmhgfs-fuse fuse.osxfs".split()
)
"""Types of file systems that do so by custom, or pass on one of another machine that may."""
_GET_FLAGS: Final = 0x80086601
_CASEFOLD_FLAG: Final = 0x40000000
_CASE_SENSITIVE: Final = 11
"""The number of ``_PC_CASE_SENSITIVE`` on macOS."""


def may_fold(root: Path) -> bool:
    """Tell whether names in ``root`` may be the same whatever their case; a directory that can't be asked may not."""
    with contextlib.suppress(OSError, ValueError):
        if sys.platform == "darwin":
            return os.pathconf(root, _CASE_SENSITIVE) == 0
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if file_system_of(fd) in _FOLDING:
                return True
            flags = fcntl.ioctl(fd, _GET_FLAGS, bytes(8))
            return bool(int.from_bytes(flags[:4], sys.byteorder) & _CASEFOLD_FLAG)
        finally:
            os.close(fd)
    return False
