"""Fails every call that waits in a FUSE mount up to a certain one; a program of its own, run by ``stuck_reads``.

Arguments: the number of sshfs's own descriptor of the FUSE device, a path in the mount, and the first request to look
at. Says a byte once it is ready, asks for the path when a byte comes on standard input, and begins when the next one
comes, by when sshfs has the question and leaves it unanswered. Answers each request with an I/O error until that one is
answered too, and says the number where that was. What sshfs says to any of them afterwards, the kernel drops.

Only the standard library, so that it starts quickly.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import struct
import sys
import time

MAX_SECONDS = 20.0
_ANSWER = struct.Struct("@IiQ")
_STEP = 2
"""Between the numbers of requests: the odd ones are for interrupts (include/uapi/linux/fuse.h)."""
_BATCH = 4096
_NOTICE_SECONDS = 0.001
_NOTICE_TRIES = 10


def main(device: int, path: str, first: int) -> int:
    """Return 0 where all is answered, 1 where it could not be done."""
    os.write(1, b"\n")
    if not os.read(0, 1):
        return 1
    asking = os.fork()
    if asking == 0:
        # With the descriptor, this process would keep the mount alive that it waits for.
        os.close(device)
        with contextlib.suppress(OSError):
            os.stat(path)
        os._exit(0)
    if not os.read(0, 1):
        os.kill(asking, signal.SIGKILL)
        return 1
    write = ctypes.CDLL(None).write
    answer = (ctypes.c_uint64 * 2).from_buffer_copy(_ANSWER.pack(_ANSWER.size, -errno.EIO, 0))
    number, met, until = first, first, time.monotonic() + MAX_SECONDS
    while time.monotonic() < until:
        for number in range(number, number + _BATCH * _STEP, _STEP):  # noqa: B020
            answer[1] = number
            if write(device, answer, _ANSWER.size) == _ANSWER.size:
                met = number
                # Later numbers belong to calls that are none of our business.
                if _ends(asking):
                    break
        if _has_ended(asking):
            os.write(1, str(met).encode())
            return 0
    os.kill(asking, signal.SIGKILL)
    return 1


def _ends(process: int) -> bool:
    """Give ``process`` a moment to notice its answer, and tell whether it did; it stays to be waited for."""
    for _ in range(_NOTICE_TRIES):
        if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True
        time.sleep(_NOTICE_SECONDS)
    return False


def _has_ended(process: int) -> bool:
    return os.waitpid(process, os.WNOHANG)[0] != 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
