"""One mounted view: starts sshfs, notices when the mount is lost, brings it back and unmounts it (DESIGN 4.6).

A mount is one ``sshfs -o passive`` whose SFTP bytes this process carries over an SSH connection it already has: no
ssh program, no key on disk, and no option, path or host that came from the wire. This process serves the mount, so
nothing here looks into it; what must is a child process that can be left alone when it hangs.

Weak: an sshfs that hangs in the kernel can be killed but not hurried, so that every wait here has a bound of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import anyio
import asyncssh

from sublet import deadlines
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.text import clean_line
from sublet.workspace.child_process import ChildProcess
from sublet.workspace.mount.channel import MountChannel
from sublet.workspace.mount.point import MountPoint
from sublet.workspace.mount.stuck_reads import StuckReads
from sublet.workspace.mount.table import is_mounted, table_changes

MOUNT_SECONDS = 10.0


FLUSH_SECONDS = 10.0


UNMOUNT_SECONDS = 5.0


EXIT_SECONDS = 2.0


STUCK_SECONDS = 0.5
"""How long a further read that can't be done waits to be told so."""


MAX_SSHFS_BYTES = 512 << 20
"""Of memory for one sshfs, which keeps the names of a directory until the delegator has told the last one: as many as
one million. Beyond it sshfs ends, and the work with it."""


_LOOK_SECONDS = 0.05


# The only options sshfs ever gets. follow_symlinks must never appear here. Its own contain_symlinks would refuse every
# link that climbs, as those of node_modules/.bin do; what leads out of the mount is refused by the relay in its place
# (CVE-2026-47187), so that nothing but the relay may ever stand between sshfs and a delegator.
OPTIONS = ",".join(
    (
        "passive",
        "no_contain_symlinks",
        "nosuid",
        "nodev",
        "dcache_timeout=2",
        "max_read=65536",
        "max_write=65536",
        "workaround=renamexdev",
    )
)


def options() -> str:
    """Return the options of sshfs for this process.

    Whatever the delegator's files belong to there, here they belong to the one user who sees them: the agent's.
    Otherwise ``cp -p``, ``install`` and ``mv`` fail for an ordinary user, and git finds the repository's owner dubious.
    """
    return f"{OPTIONS},uid={os.getuid()},gid={os.getgid()}"


class Mount:
    """One mounted view. Made by ``Mounts.attach``, ended by ``detach``.

    Args:
        point: the directory to mount on, which this mount closes.
        hardened: told whether the directory below the mount is protected, once it is mounted.
        unmounted: removes the directory at the end, where nothing is mounted on it.
    """

    def __init__(
        self, point: MountPoint, hardened: Callable[[Path, bool], None], unmounted: Callable[[Path], object]
    ) -> None:
        self.path = point.path
        self.cut = asyncio.Event()
        """Set while there is no link: every call in the mount then fails at once, and ``rejoin`` brings it back."""
        self.lost = asyncio.Event()
        """Set as soon as sshfs has ended without us, and the mount with it."""
        self._hardened = hardened
        self._unmounted = unmounted
        self._point = point
        self._sshfs: ChildProcess | None = None
        self._channel: MountChannel | None = None
        self._lock = asyncio.Lock()
        self._ending = False
        self._gave_up = ""
        self._flushed: bool | None = None

    @property
    def is_copy(self) -> bool:
        """``Carried.is_copy``: every call goes to the delegator."""
        return False

    @property
    def is_there(self) -> bool:
        """``Carried.is_there``, as the kernel's own table tells it."""
        return not self.lost.is_set() and is_mounted(self.path)

    @property
    def left(self) -> str:
        """``Carried.left``, as the kernel's own table tells it."""
        return f"{self.path} is still mounted" if is_mounted(self.path) else ""

    @property
    def why_cut(self) -> str:
        """``Carried.why_cut``."""
        return self._channel.why_cut if self._channel is not None else ""

    @property
    def why_lost(self) -> str:
        """``Carried.why_lost``."""
        if not self.lost.is_set():
            return ""
        if self._gave_up:
            return self._gave_up
        status = self._sshfs.status if self._sshfs is not None else None
        if status is not None and status < 0:
            return f"sshfs was killed by signal {-status}"
        return "sshfs has ended by itself" + (f" with status {status}" if status is not None else "")

    @property
    def interrupted(self) -> int:
        """``Carried.interrupted``."""
        return self._channel.interrupted if self._channel is not None else 0

    @property
    def over_quota(self) -> bool:
        """``Carried.over_quota``."""
        return self._channel is not None and self._channel.over_quota

    async def attend(self) -> None:
        """``Carried.attend``: programs are told of reads that can't be done."""
        assert self._channel is not None
        assert self._sshfs is not None
        stuck = StuckReads(self._sshfs.pid, self.path)
        while not self.lost.is_set():
            await self._channel.reads_stuck.wait()
            if not await self._channel.fail_reads(stuck):
                # Better no mount than one whose files seem to end where they don't.
                self._gave_up = "a program was reading when the link was lost, and could not be told otherwise"
                await self._sshfs.ended(0)
                return
            # Where there is a link, other calls suffer each time, so that this may not happen often.
            await asyncio.sleep(0 if self.cut.is_set() else STUCK_SECONDS)

    async def rejoin(self, connection: asyncssh.SSHClientConnection) -> None:
        """Go on over another connection, after the last one was ``cut``.

        Raises:
            SubletError: ``MOUNT_FAILED`` where the delegator gives no file channel there.
        """
        assert self._channel is not None
        await self._channel.rejoin(connection)

    async def bring_back(self) -> bool:
        """``Carried.bring_back``: what programs wrote is with the delegator already."""
        return True

    async def detach(self, *, flush: bool = True) -> bool:
        """Write out what is pending, unless ``flush`` is false, unmount, end sshfs and remove the directory.

        Bounded in time whatever the link does. Calling it again returns the first answer, or goes on where a
        cancelled call stopped. End the processes that work in the mount first.

        Returns:
            Whether everything that was written is known to have reached the delegator.
        """
        async with self._lock:
            if self._flushed is None:
                self._flushed = await self._detach(flush=flush)
            return self._flushed

    async def _detach(self, *, flush: bool) -> bool:
        if self.lost.is_set() or self.cut.is_set() or not flush:
            await self.end(at_once=True)
            return False
        # syncfs on a FUSE mount writes back what programs changed through shared mappings.
        status = await ChildProcess.run(["sync", "-f", "--", str(self.path)], FLUSH_SECONDS)
        flushed = status == 0 and not self.lost.is_set() and not self.cut.is_set()
        # What did not answer until now is not waited for again.
        await self.end(at_once=status is None)
        return flushed and not is_mounted(self.path)

    async def start(self, connection: asyncssh.SSHClientConnection, remote_path: str) -> None:
        """Start sshfs and wait until the mount answers. For ``Mounts.attach`` only.

        Raises:
            SubletError: ``MOUNT_FAILED``, with what sshfs said.
        """
        ours, theirs = socket.socketpair()
        try:
            argv = [shutil.which("sshfs") or "sshfs", "-f", "-o", options(), f"sublet:{remote_path}", str(self.path)]
            self._sshfs = await ChildProcess.start(argv, sock=theirs, on_exit=self._ended)
            # Before it hears a word of the delegator's.
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(self._sshfs.pid, resource.RLIMIT_DATA, (MAX_SSHFS_BYTES, MAX_SSHFS_BYTES))
            top = sum(1 for part in remote_path.split("/") if part not in ("", "."))
            self._channel = await MountChannel.open(connection, ours, self.cut, self._pipe_ended, top)
        except OSError as error:
            ours.close()
            raise self._failure(f"sshfs can't be started ({error.strerror})") from error
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            async with deadlines.timeout(MOUNT_SECONDS):
                with table_changes() as changed:
                    while not is_mounted(self.path) and not self.lost.is_set():
                        # An end of sshfs changes no table.
                        with anyio.move_on_after(_LOOK_SECONDS):
                            await changed.wait()
                        changed.clear()
        except TimeoutError:
            raise self._failure(f"nothing was mounted within {MOUNT_SECONDS:.0f} s") from None
        self._hardened(self.path, self._point.harden())
        # sshfs mounts first, asks the delegator for the directory then, and unmounts again if there is none. So a look
        # at the mount counts only if the mount is still there after it.
        looked = await ChildProcess.run(["stat", "--", str(self.path)], MOUNT_SECONDS)
        if looked != 0 or self.lost.is_set() or not is_mounted(self.path):
            await self._sshfs.ended(EXIT_SECONDS)
            raise self._failure("the lender's files do not answer")

    async def end(self, *, at_once: bool = False) -> None:
        """Unmount, end sshfs, and remove the directory with what protects it. Safe to call again.

        Args:
            at_once: kill sshfs first, which answers every waiting call, even where it is stopped.
        """
        self._ending = True
        if at_once and self._sshfs is not None:
            await self._sshfs.ended(0)
        if is_mounted(self.path) and not at_once:
            await ChildProcess.run(["fusermount3", "-u", "--", str(self.path)], UNMOUNT_SECONDS)
        if is_mounted(self.path):
            await ChildProcess.run(lazy_unmount(self.path), UNMOUNT_SECONDS)
        if self._sshfs is not None:
            # Whoever still waits for the mount gets an error as soon as sshfs is gone.
            await self._sshfs.ended(EXIT_SECONDS)
        if self._channel is not None:
            self._channel.close()
        self._point.soften()
        self._point.close()
        self._unmounted(self.path)

    def _pipe_ended(self) -> None:
        # How sshfs ended is known a moment later, and is worth telling.
        asyncio.get_running_loop().call_later(EXIT_SECONDS, self._ended)

    def _ended(self) -> None:
        if not self._ending:
            self.lost.set()

    def _failure(self, reason: str) -> SubletError:
        said = clean_line(bytes(self._sshfs.stderr if self._sshfs else b"").decode(errors="replace"), 500)
        return SubletError(
            ErrorCode.MOUNT_FAILED,
            f"the workspace could not be mounted at {self.path}: {said or reason}",
            "Run 'sublet doctor' on the executor; it checks sshfs, FUSE and the mount root.",
        )


def lazy_unmount(path: Path) -> list[str]:
    """Return the command that takes ``path`` out of the tree at once, whoever still uses the mount."""
    return ["fusermount3", "-u", "-z", "--", str(path)]
