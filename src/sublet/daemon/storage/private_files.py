"""Files that hold secrets: made whole or not at all, and readable by their owner alone."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from sublet.disk.durable import sync_directory
from sublet.protocol.errors import LocalCode, SubletError

MAX_PRIVATE_BYTES = 64 * 1024


def read_private(path: Path) -> bytes | None:
    """Return the content of a file that only we may read, or None where there is none.

    Raises:
        SubletError: ``UNAVAILABLE`` where it is a link, not ours, open to others, or too large.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(path, f"can't be opened: {error.strerror}", "It must be a plain file of yours.") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _refused(path, "is not a plain file", "Move it aside.")
        if found.st_uid != os.getuid():
            raise _refused(path, f"belongs to user {found.st_uid}", "Run the daemon as the user who owns it.")
        if found.st_mode & 0o077:
            hint = f"If nobody else has read it, run: chmod 600 {path}; otherwise remove it, and pair again."
            raise _refused(path, f"is open to others (mode {found.st_mode & 0o777:o})", hint)
        content = os.read(descriptor, MAX_PRIVATE_BYTES + 1)
    except OSError as error:
        raise _refused(path, f"can't be read: {error.strerror}", "It must be a plain file of yours.") from None
    finally:
        os.close(descriptor)
    if len(content) > MAX_PRIVATE_BYTES:
        raise _refused(path, f"is larger than {MAX_PRIVATE_BYTES} bytes", "It is not a file of ours: move it aside.")
    return content


def make_private(path: Path, content: bytes) -> bytes:
    """Make a file of mode 0600 in one step and return what it holds: if someone else was first, theirs counts.

    Raises:
        SubletError: ``UNAVAILABLE`` where it can't be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            try:
                # link, since unlike rename it never replaces a key that is there already
                os.link(draft, path)
            except FileExistsError:
                return read_private(path) or b""
        finally:
            os.unlink(draft)
        sync_directory(path.parent)
    except OSError as error:
        raise _refused(path, f"can't be written: {error.strerror}", "Check the disk and the directory.") from None
    return content


def _refused(path: Path, why: str, hint: str) -> SubletError:
    return SubletError(LocalCode.UNAVAILABLE, f"{path} {why}", hint)
