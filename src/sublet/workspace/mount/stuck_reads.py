"""Tells programs of a read that can't be done: sshfs can't.

Where an SFTP server answers a READ with an error, sshfs 3 tells its program that the file ends there. A file that is
silently cut short is worse than an error, so such a READ is not answered by SFTP at all: the kernel is told EIO in
sshfs's name, over sshfs's own descriptor of the FUSE device, and only then sshfs gets its answer, which nobody hears.
The kernel does not say which numbers the waiting calls have. So a helper goes through all since the last time, up to a
call of its own. Every call that waits at that moment fails, which is why nothing else may be under way then.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from sublet import deadlines
from sublet.workspace.child_process import ChildProcess
from sublet.workspace.mount import stuck_reads_helper

ASKED_SECONDS = 3.0
"""How long the helper may take to be ready, and its own call to get here."""
_PIDFD_GETFD = 438
_DEVICE = "/dev/fuse"
_FIRST_REQUEST = 2


class StuckReads:
    """Fails the calls that wait in one mount.

    Args:
        sshfs: the process id that serves it.
        mount: where it is; nothing here looks into it.
    """

    def __init__(self, sshfs: int, mount: Path) -> None:
        self._sshfs = sshfs
        self._mount = mount
        self._next = _FIRST_REQUEST

    async def fail(self, hush: Callable[[bytes], Awaitable[asyncio.Event]]) -> bool:
        """Fail every call that waits by the time that ``hush`` returns, and perhaps some that come at once after it.

        Args:
            hush: called with a name once all is ready; from its return on a question for it is kept unanswered, and
                the event is set once it is there.

        Returns:
            Whether it could be done on this machine.
        """
        name = f".sublet-{secrets.token_hex(8)}"
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            device = _borrow(self._sshfs)
            try:
                argv = [sys.executable, "-I", "-S", str(Path(stuck_reads_helper.__file__))]
                argv += [str(device), str(self._mount / name), str(self._next)]
                helper = await ChildProcess.start(argv, sock=theirs, pass_fds=(device,))
            finally:
                os.close(device)
                theirs.close()
            return await self._direct(helper, ours, hush, name.encode())
        except OSError:
            return False
        finally:
            ours.close()

    async def _direct(
        self, helper: ChildProcess, sock: socket.socket, hush: Callable[[bytes], Awaitable[asyncio.Event]], name: bytes
    ) -> bool:
        loop = asyncio.get_running_loop()
        try:
            async with deadlines.timeout(ASKED_SECONDS):
                await loop.sock_recv(sock, 1)
            asked = await hush(name)
            await loop.sock_sendall(sock, b"\n")
            async with deadlines.timeout(ASKED_SECONDS):
                await asked.wait()
            await loop.sock_sendall(sock, b"\n")
            if await helper.ended(stuck_reads_helper.MAX_SECONDS + 1) != 0:
                return False
            self._next = int(await loop.sock_recv(sock, 32))
            return True
        except (TimeoutError, ValueError):
            return False
        finally:
            await helper.ended(0)


def _borrow(pid: int) -> int:
    """Return a copy of the FUSE descriptor of ``pid``, which is a child of ours.

    Raises:
        OSError: it has none, or this kernel, or its rules, give none.
    """
    folder = Path(f"/proc/{pid}/fd")
    number = next((int(entry.name) for entry in folder.iterdir() if _leads_to_device(entry)), None)
    if number is None:
        raise OSError("no FUSE device")
    process = os.pidfd_open(pid)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        copy = int(libc.syscall(ctypes.c_long(_PIDFD_GETFD), process, number, 0))
    finally:
        os.close(process)
    if copy < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return copy


def _leads_to_device(entry: Path) -> bool:
    try:
        return os.readlink(entry) == _DEVICE
    except OSError:
        return False
