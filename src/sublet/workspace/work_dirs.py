"""Private directories of an executor, one per delegation, that are gone when its work is (DESIGN 4.10)."""

from __future__ import annotations

import os
from pathlib import Path

from sublet.disk.removal import is_removed
from sublet.protocol.names import MalformedName, parse_plain_name
from sublet.workspace.mount.point import denied


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
        try:
            path = self.root / parse_plain_name(delegation_id)
        except MalformedName:
            raise denied(self.root, "the delegation id is not a plain name") from None
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
        with os.scandir(descriptor) as entries:
            empty = next(entries, None) is None
        if not empty:
            os.close(descriptor)
            raise denied(place, "it is not empty")
        return descriptor

    def release(self, place: Path) -> bool:
        """Remove a directory of ours with all that is in it, and return whether it is gone."""
        return place.parent != self.root or is_removed(place)

    def reap(self) -> list[str]:
        """Remove all of them, as a crash leaves them; return their names."""
        try:
            names = os.listdir(self.root)
        except FileNotFoundError:
            return []
        return sorted(name for name in names if self.release(self.root / name))
