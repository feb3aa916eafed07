"""One daemon per home: a locked file that names its owner (DESIGN 3)."""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass, replace
from types import TracebackType

from sublet.daemon.config.paths import MAX_OWNER_BYTES, Home
from sublet.daemon.times import rfc3339
from sublet.protocol.errors import LocalCode, SubletError

_TRIES = 5
_PAUSE_SECONDS = 0.02
"""``read_owner`` holds the lock for an instant; a start that meets it tries again."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The daemon that holds the lock; ``started_at`` is RFC 3339, ``socket`` its control socket."""

    pid: int
    started_at: str
    socket: str


class InstanceLock:
    """The lock, held until ``release`` or the end of the process, however it ends."""

    def __init__(self, descriptor: int, path: str, owner: Owner) -> None:
        self._descriptor = descriptor
        self._path = path
        self.owner = owner

    @classmethod
    def acquire(cls, home: Home) -> InstanceLock:
        """Take the lock and write our name into it. Blocks for 0.1 s at most.

        Raises:
            SubletError: ``ALREADY_RUNNING`` naming the owner's pid and since when.
        """
        owner = Owner(pid=os.getpid(), started_at=rfc3339(), socket=home.control_socket)
        for _ in range(_TRIES):
            descriptor = _open(home.lock_file)
            if _try_lock(descriptor, home.lock_file):
                _write(descriptor, owner)
                return cls(descriptor, home.lock_file, owner)
            os.close(descriptor)
            time.sleep(_PAUSE_SECONDS)
        raise _already_running(home)

    @property
    def holds(self) -> bool:
        """Whether the file that is locked is still the one by its name, so that no other daemon can start here."""
        return _is_current(self._descriptor, self._path)

    def renew(self) -> bool:
        """Hold a file by its name again where somebody has removed it; return False where another daemon does."""
        if self.holds:
            return True
        try:
            descriptor = _open(self._path)
        except SubletError:
            return False
        if not _try_lock(descriptor, self._path):
            os.close(descriptor)
            return False
        _write(descriptor, self.owner)
        os.close(self._descriptor)
        self._descriptor = descriptor
        return True

    def moved(self, home: Home) -> None:
        """Write down that the sockets are in another directory now."""
        self.owner = replace(self.owner, socket=home.control_socket)
        _write(self._descriptor, self.owner)

    def release(self) -> None:
        """Remove the file and let the lock go; calling it twice is no error."""
        if self._descriptor < 0:
            return
        # Removed while still held: whoever opened it before notices that its file is no longer the one by that name.
        if _is_current(self._descriptor, self._path):
            os.unlink(self._path)
        os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> InstanceLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def read_owner(home: Home) -> Owner | None:
    """Return who holds the lock, or None where nobody does."""
    try:
        descriptor = os.open(home.lock_file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _parse(os.pread(descriptor, MAX_OWNER_BYTES, 0))
    else:
        return None
    finally:
        os.close(descriptor)


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise SubletError(
            LocalCode.UNAVAILABLE, f"{path} can't be opened: {error.strerror}", "Choose another place with SUBLET_HOME."
        ) from None


def _write(descriptor: int, owner: Owner) -> None:
    os.ftruncate(descriptor, 0)
    # As it is, without escapes, so that a reader can look for a path without parsing it.
    os.pwrite(descriptor, os.fsencode(json.dumps(asdict(owner), ensure_ascii=False)), 0)


def _try_lock(descriptor: int, path: str) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return _is_current(descriptor, path)


def _is_current(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _parse(raw: bytes) -> Owner | None:
    try:
        value = json.loads(os.fsdecode(raw))
        return Owner(pid=int(value["pid"]), started_at=str(value["started_at"]), socket=str(value["socket"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _already_running(home: Home) -> SubletError:
    owner = read_owner(home)
    who = f"pid {owner.pid}, since {owner.started_at}" if owner else "it is starting"
    return SubletError(
        LocalCode.ALREADY_RUNNING,
        f"a daemon for {home.root} is already running ({who})",
        "Use it as it is, or stop it with `sublet down`.",
    )
