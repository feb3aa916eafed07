"""A daemon on a machine where nothing can be mounted: without ``/dev/fuse``, or with one that nobody may open."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from support.daemons import Daemon

_SCRIPT = """
    set -e
    dev=$1 fuse=$2
    shift 2
    mount --make-rprivate /
    mount -t tmpfs none "$dev"
    for name in null zero full random urandom tty; do : > "$dev/$name"; mount --bind "/dev/$name" "$dev/$name"; done
    mkdir "$dev/shm"
    if [ "$fuse" = forbidden ]; then
        mkdir "$dev/nodev"
        mount -t tmpfs -o nodev none "$dev/nodev"
        mknod -m 0666 "$dev/nodev/fuse" c 10 229
        : > "$dev/fuse"
        mount --bind "$dev/nodev/fuse" "$dev/fuse"
    fi
    mount --rbind "$dev" /dev
    exec "$@"
"""


def fuseless(base: Path, device: Literal["absent", "forbidden"]) -> Daemon:
    """Return a daemon below ``base`` whose ``/dev/fuse`` is absent, or can't be opened. Needs root."""
    devices = base / "dev"
    devices.mkdir()
    return Daemon(
        base / "c", prefix=["/usr/bin/unshare", "--mount", "/bin/sh", "-c", _SCRIPT, "sh", str(devices), device]
    )
