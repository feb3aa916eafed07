"""All mounts of one executor: makes the directories for them below one root, and clears up after a crash (DESIGN 4.6).

Rules: nothing is mounted outside the root; links are never followed; a directory that holds anything stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from pathlib import Path

import anyio
import asyncssh
import structlog

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.ids import WIRE_DELEGATION_ID
from sublet.protocol.patterns import Pattern
from sublet.workspace.mount.mount import UNMOUNT_SECONDS, Mount, lazy_unmount
from sublet.workspace.mount.point import MountPoint, denied, remove_empty
from sublet.workspace.mount.table import is_mounted, mounted_below
from sublet.workspace.requirements import require_mount

log = structlog.get_logger(__name__)

NO_GUARD = "none: its file system can't make a directory immutable, and root ignores permissions"
"""What ``Mounts.guard`` says where a lost mount leaves a directory that can be written to."""


# What AWCP allows as a delegation id; nothing of this shape is a path, a hidden name or an option.
_REMOTE_PATH = Pattern(r"/(?:[A-Za-z0-9_][A-Za-z0-9._-]*/?)*\Z")


class Mounts:
    """All mounts of one executor.

    Args:
        root: the one directory below which anything is mounted; made when needed, and private to this user.
    """

    def __init__(self, root: Path) -> None:
        # The kernel's table tells paths without links, so ours have none above the root either.
        self.root = Path(os.path.realpath(root.parent)) / root.name
        self._guarded: bool | None = None

    @property
    def guard(self) -> str:
        """What keeps programs out of a mount's directory, should the mount be lost; as the newest mount found."""
        if self._guarded is None:
            return "not known before the first mount"
        if self._guarded:
            return "immutable directory" if os.geteuid() == 0 else "directory without permissions"
        return NO_GUARD

    def _note_guard(self, path: Path, guarded: bool) -> None:
        """Remember and log whether the directory at ``path`` is protected below its mount."""
        self._guarded = guarded
        if not guarded:
            log.warning("nothing protects a directory, should its mount be lost", path=str(path), reason=NO_GUARD)

    def reserve(self, delegation_id: str) -> Path:
        """Make the empty directory for a delegation and return its path, for ACCEPT to name (AWCP 4.2).

        Raises:
            SubletError: ``MOUNTPOINT_DENIED`` where the id can't name a directory, or something is there already.
        """
        if not WIRE_DELEGATION_ID.match(delegation_id):
            raise denied(self.root, "the delegation id is not a plain name")
        path = self.root / delegation_id
        os.close(self._open_root())
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            MountPoint(path, self.root).close()
        except OSError as error:
            raise denied(path, f"it can't be made ({error.strerror})") from error
        return path

    def release(self, mount_point: Path) -> bool:
        """Remove a reserved directory that nothing was mounted on; quiet where it is gone, mounted on or not empty.

        Returns:
            Whether nothing is mounted there.
        """
        if is_mounted(mount_point):
            return False
        if mount_point.parent == self.root:
            self._remove(mount_point.name)
        return True

    async def attach(
        self, mount_point: Path, connection: asyncssh.SSHClientConnection, remote_path: str = "/"
    ) -> Mount:
        """Mount the delegator's view and return once it is there.

        Args:
            mount_point: as ``reserve`` returned it.
            connection: logged in to the delegator; the caller closes it, after ``Mount.detach``.
            remote_path: the directory of the view to mount, in plain characters.

        Raises:
            SubletError: ``DEP_MISSING`` where this machine can't mount, ``MOUNTPOINT_DENIED`` for an unfit directory,
                ``MOUNT_FAILED`` with what sshfs said. But for ``MOUNTPOINT_DENIED`` the directory is then gone.
        """
        if not _REMOTE_PATH.match(remote_path):
            raise SubletError(ErrorCode.MOUNT_FAILED, "the remote path is not a plain absolute path", "Mount '/'.")
        try:
            await asyncio.to_thread(require_mount)
        except SubletError:
            self.release(mount_point)
            raise
        point = MountPoint(mount_point, self.root)
        mount = Mount(point, self._note_guard, self.release)
        try:
            await mount.start(connection, remote_path)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await mount.end()
            raise
        return mount

    def reap(self) -> list[str]:
        """Unmount everything below the root and remove the directories that are left, as a crash leaves them.

        Only for start-up, before the first ``reserve``, and in a thread: it waits for ``fusermount3``. Links are never
        followed, and a directory that holds anything stays.

        Returns:
            The names of what was unmounted or removed.
        """
        reaped = set()
        for path in mounted_below(self.root):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                argv = lazy_unmount(path)
                subprocess.run(argv, cwd="/", capture_output=True, timeout=UNMOUNT_SECONDS, check=False)
            if not is_mounted(path):
                reaped.add(path.relative_to(self.root).parts[0])
        descriptor = self._open_root()
        try:
            mounted = {path.relative_to(self.root).parts[0] for path in mounted_below(self.root)}
            for name in os.listdir(descriptor):
                if name not in mounted and remove_empty(name, descriptor):
                    reaped.add(name)
        finally:
            os.close(descriptor)
        return sorted(reaped)

    def _remove(self, name: str) -> bool:
        descriptor = self._open_root()
        try:
            return remove_empty(name, descriptor)
        finally:
            os.close(descriptor)

    def _open_root(self) -> int:
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise denied(self.root, f"the mount root is not a directory of ours ({error.strerror})") from error
