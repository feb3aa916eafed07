"""Mounts one overlay out of everybody's sight and hands its root back: run alone, ``python -I -S`` with a socket.

The mount namespace ends with this process, which nobody sees; the mount lives on for as long as its root is held open.
Without root it is made in a user namespace, where the daemon's own user is the only one there is.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_NOSUID, MS_NODEV = 2, 4
MS_REC, MS_PRIVATE = 0x4000, 0x40000
DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def main(sock_fd: int, lower: bytes, identity: bytes, private: bytes) -> None:
    """Mount ``upper`` and ``work`` of ``private`` over ``lower`` and send the root's descriptor.

    Args:
        sock_fd: connected Unix socket.
        lower: real path of the directory below.
        identity: its device and inode, ``D:I``.
        private: real path of the directory that holds ``upper``, ``work`` and ``merged``.

    Raises:
        OSError: whatever the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.geteuid(), os.getegid()
    _check(libc.unshare(CLONE_NEWNS | (CLONE_NEWUSER if uid else 0)), "unshare")
    if uid:
        for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as control:
                control.write(line)
    _check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    # Opened only now, since overlayfs takes directories of its own mount namespace alone; named by descriptors, so that
    # no character of a path is taken for an option.
    below = os.open(lower, DIRECTORY)
    status = os.fstat(below)
    if b"%d:%d" % (status.st_dev, status.st_ino) != identity:
        raise FileNotFoundError(2, "the directory was replaced")
    upper, work = (os.open(private + name, DIRECTORY) for name in (b"/upper", b"/work"))
    options = b"userxattr,lowerdir=/proc/self/fd/%d,upperdir=/proc/self/fd/%d,workdir=/proc/self/fd/%d"
    target = private + b"/merged"
    flags = MS_NOSUID | MS_NODEV
    _check(libc.mount(b"overlay", target, b"overlay", flags, options % (below, upper, work)), "mount overlay")
    root = os.open(target, DIRECTORY)
    socket.send_fds(socket.socket(fileno=sock_fd), [b"."], [root])


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), *(os.fsencode(argument) for argument in sys.argv[2:5]))
    except OSError as error:
        sys.exit(error.strerror or str(error))
