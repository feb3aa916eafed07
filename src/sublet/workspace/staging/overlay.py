"""A private view as a layer over the directory itself, by overlayfs without a visible mount (DESIGN 4.7).

Nothing is copied, whatever the size. But what is changed in the directory itself meanwhile shows through, which
overlayfs promises nothing about: so a copy comes first, and only what the layer holds counts as the executor's.
"""

from __future__ import annotations

import functools
import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from sublet.disk.removal import is_removed
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.text import clean_line, clean_name
from sublet.workspace.staging import overlay_helper
from sublet.workspace.view.walk import open_root

HELPER_SECONDS: Final = 20.0
_HELPER = Path(overlay_helper.__file__)
_ENTER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque")


def mount_overlay(root: Path, private: Path) -> int:
    """Return the root descriptor of an overlay of ``root`` whose changes go to ``private``; they survive the mount.

    It blocks for some tens of milliseconds. A second mount of the same layer, after a crash, shows it as it was left.

    Raises:
        SubletError: ``WORKSPACE_NOT_FOUND`` where the directory is gone, ``DEP_MISSING`` where no overlay can be made.
    """
    try:
        below = open_root(root)
    except OSError as exc:
        raise SubletError(
            ErrorCode.WORKSPACE_NOT_FOUND,
            f"{clean_name(os.fsencode(root))} can't be opened: {exc.strerror}",
            "Check that the directory still exists and that you may read it.",
        ) from None
    status = os.fstat(below)
    os.close(below)
    for name in ("upper", "work", "merged"):
        (private / name).mkdir(mode=0o700, exist_ok=True)
    os.chmod(private / "upper", stat.S_IMODE(status.st_mode))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(HELPER_SECONDS)
        identity = f"{status.st_dev}:{status.st_ino}"
        argv: list[str | Path] = [
            sys.executable,
            "-I",
            "-S",
            str(_HELPER),
            str(theirs.fileno()),
            root,
            identity,
            private.resolve(),
        ]
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                cwd="/",
                env={"LC_ALL": "C.UTF-8"},
                timeout=HELPER_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise _missing(str(exc)) from None
        if done.returncode != 0:
            raise _missing(done.stderr.decode(errors="replace"))
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    if not descriptors:
        raise _missing("its root was not handed over")
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def holds(private: Path, path: bytes) -> bool:
    """Tell whether the layer in ``private`` decides about ``path``: it has it, hides it, or replaces what is above.

    Raises:
        OSError: the layer can't be read.
    """
    current = os.open(private / "upper", _ENTER)
    parts = path.split(b"/")
    try:
        for depth, part in enumerate(parts, 1):
            try:
                status = os.stat(part, dir_fd=current, follow_symlinks=False)
            except FileNotFoundError:
                return False
            if depth == len(parts) or not stat.S_ISDIR(status.st_mode):
                return True
            below = os.open(part, _ENTER, dir_fd=current)
            os.close(current)
            current = below
            if _opaque(f"/proc/self/fd/{current}"):
                return True
    finally:
        os.close(current)
    return False


def why_no_overlay(state_dir: Path) -> str:
    """Return why no overlay can be made whose changes go to ``state_dir``; empty where it was tried and works."""
    reason = _tried(str(state_dir))
    if reason:
        _tried.cache_clear()  # it may be mended meanwhile
    return reason


@functools.lru_cache(maxsize=8)
def _tried(state_dir: str) -> str:
    place = tempfile.mkdtemp(prefix="overlay-probe-", dir=state_dir)
    try:
        lower = Path(place, "lower")
        lower.mkdir()
        (lower / "file").write_bytes(b"below")
        root = mount_overlay(lower.resolve(), Path(place))
        try:
            fd = os.open("file", os.O_WRONLY | os.O_TRUNC, dir_fd=root)
            os.close(fd)
        finally:
            os.close(root)
        return "" if (lower / "file").read_bytes() == b"below" else "it writes through"
    except SubletError as error:
        return error.message
    except OSError as exc:
        return exc.strerror or str(exc)
    finally:
        is_removed(Path(place))  # the kernel leaves a directory in it that its owner may not enter


def _opaque(directory: str) -> bool:
    for name in _OPAQUE:
        try:
            if os.getxattr(directory, name) == b"y":
                return True
        except OSError:
            continue
    return False


def _missing(reason: str) -> SubletError:
    return SubletError(
        ErrorCode.DEP_MISSING,
        f"no overlay can be made here: {clean_line(reason, 300)}",
        "A plain copy works everywhere. For an overlay: Linux 5.11 or later with unprivileged user namespaces.",
    )
