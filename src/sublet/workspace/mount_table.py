"""What is mounted where, read from the kernel's table: unlike ``stat`` that never asks the file system itself."""

from __future__ import annotations

import re
from pathlib import Path

_MOUNTINFO = Path("/proc/self/mountinfo")
_POINT_FIELD = 4
_OCTAL = re.compile(rb"\\([0-7]{3})")


def mounted_below(root: Path) -> list[Path]:
    """Return the mount points strictly below ``root``, the last mounted first."""
    found = []
    for line in _MOUNTINFO.read_bytes().splitlines():
        raw = _OCTAL.sub(lambda code: bytes([int(code[1], 8)]), line.split(b" ", _POINT_FIELD + 1)[_POINT_FIELD])
        point = Path(raw.decode(errors="surrogateescape"))
        if point != root and point.is_relative_to(root):
            found.append(point)
    return found[::-1]


def is_mounted(path: Path) -> bool:
    """Tell whether something is mounted at exactly ``path``, an absolute path without links."""
    return path in mounted_below(path.parent)
