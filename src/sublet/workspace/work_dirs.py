"""Private directories of an executor, one per delegation, that are gone when its work is (DESIGN 4.10)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from sublet.disk.removal import remove_tree
from sublet.protocol.ids import WIRE_DELEGATION_ID
from sublet.workspace.mount.point import denied

REMOVE_SECONDS: Final = 60.0


class WorkDirs:
    """Makes and removes them.

    Args:
        root: the one directory below which they lie; made when needed, and private to this user.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def reserve(self, delegation_id: str) -> Path:
        """Make the empty directory of a delegation.

        Raises:
            SubletError: ``MOUNTPOINT_DENIED`` where the id can't name one, or something is there already.
        """
        if not WIRE_DELEGATION_ID.match(delegation_id):
            raise denied(self.root, "the delegation id is not a plain name")
        path = self.root / delegation_id
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
        except OSError as error:
            raise denied(path, f"it can't be made ({error.strerror})") from error
        return path

    def open(self, place: Path) -> int:
        """Return a descriptor of a reserved directory.

        Raises:
            SubletError: ``MOUNTPOINT_DENIED`` where it is not one of ours, or not empty.
        """
        if place.parent != self.root:
            raise denied(place, f"it is not directly below {self.root}")
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise denied(place, f"it can't be opened as a directory ({error.strerror})") from error
        if os.listdir(descriptor):
            os.close(descriptor)
            raise denied(place, "it is not empty")
        return descriptor

    def release(self, place: Path) -> bool:
        """Remove a directory of ours with all that is in it, and return whether it is gone."""
        if place.parent != self.root:
            return True
        try:
            remove_tree(place)
        except (OSError, RecursionError):  # deeper than Python can go down
            argv = ["rm", "-rf", "--", str(place)]
            subprocess.run(argv, cwd="/", capture_output=True, timeout=REMOVE_SECONDS, check=False)
        return not os.path.lexists(place)

    def reap(self) -> list[str]:
        """Remove all of them, as a crash leaves them; return their names."""
        try:
            names = os.listdir(self.root)
        except FileNotFoundError:
            return []
        return sorted(name for name in names if self.release(self.root / name))
