"""The daemon's own writing in a directory in which somebody else could change every name meanwhile.

The scratch directory of a job is the daemon's and the agent's at once: the daemon puts a home, a prompt and copies of
logins there before each prompt, and the agent may have put a link, a FIFO or a directory in place of any of them.
Everything here starts at the descriptor of that directory, goes down name by name without following a link or entering
a mount, and never opens what is there already to write into it: what stands in the way is the agent's own, and is
removed, and a file is always a new one.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path
from types import TracebackType
from typing import Final

from sublet.disk.openat2 import DIRECTORY_PATH, choose_opener
from sublet.disk.plain_file import open_plain, read_plain
from sublet.disk.removal import remove_beneath

PRIVATE_DIRECTORY: Final = 0o700
PRIVATE_FILE: Final = 0o600
MAX_TRIES: Final = 8
"""How often a name is tried again that somebody keeps changing."""
CLEAR_SECONDS: Final = 5.0
"""How long it is tried to remove what stands in the way of one name."""
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PrivateDir:
    """One such directory, held open. Every method blocks on the disk alone: call it in a thread.

    Args:
        fd: its descriptor (``O_PATH`` is enough), owned by this object from now on.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def open(cls, path: Path) -> PrivateDir:
        """Open the directory ``path``. Only the directory that holds it is trusted: ``path`` itself is no link.

        Raises:
            OSError: it is not there, or no directory.
        """
        return cls(os.open(path, DIRECTORY_PATH | os.O_NOFOLLOW))

    def __enter__(self) -> PrivateDir:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor, which stays this object's."""
        return self._fd

    def close(self) -> None:
        """Let go of it; twice is no error."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def directory(self, *names: str, fresh: bool = False) -> PrivateDir:
        """Enter the directory ``names``, one below the other, and make what is missing of them.

        Whatever else has one of these names is removed: a link, a file, a FIFO.

        Args:
            names: of directories; none of them has a ``/``.
            fresh: whether the last one has to be new and empty.

        Raises:
            OSError: one can't be made or entered.
            ValueError: what can't be a name.
        """
        current = os.dup(self._fd)
        try:
            for number, name in enumerate(names, 1):
                below = _entered(current, _name(name), fresh=fresh and number == len(names))
                os.close(current)
                current = below
        except BaseException:
            os.close(current)
            raise
        return PrivateDir(current)

    def write(self, name: str, data: bytes, *, mode: int = PRIVATE_FILE) -> None:
        """Put a new file in place of whatever has that name.

        Raises:
            OSError: it can't be written.
            ValueError: what can't be a name.
        """
        fd = self._created(_name(name), mode)
        with open(fd, "wb") as file:
            os.fchmod(fd, mode)  # whatever the umask is
            file.write(data)

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a regular file, up to one byte more than ``limit``: ``read_plain``."""
        return read_plain(Path(os.fsdecode(_name(name))), limit, follow=False, directory=self._fd)

    def open_file(self, name: str) -> int:
        """Return a descriptor of a regular file, to read it; never waits for anybody: ``open_plain``."""
        return open_plain(Path(os.fsdecode(_name(name))), follow=False, directory=self._fd)

    def remove(self, name: str) -> None:
        """Remove whatever has that name, with all that is below it: ``remove_beneath``."""
        remove_beneath(self._fd, _name(name))

    def _created(self, name: bytes, mode: int) -> int:
        """Return a descriptor of a new file, in place of whatever has that name."""
        for _ in range(MAX_TRIES):
            try:
                return os.open(name, _CREATE, mode, dir_fd=self._fd)
            except FileExistsError:
                _clear(self._fd, name)
        raise OSError(errno.EBUSY, "its name is changed all the time")


def make_fresh(path: Path, *below: str) -> None:
    """Make the empty directory ``path``, and directories in it. Blocks.

    What is there already is another job's, which a crash has left, and is removed.

    Args:
        path: where it is; the directory that holds it is the daemon's own, and is made where it is missing.
        below: names of directories in it.

    Raises:
        OSError: it can't be made.
    """
    path.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    with PrivateDir.open(path.parent) as parent, parent.directory(path.name, fresh=True) as made:
        for name in below:
            made.directory(name).close()


def _name(name: str) -> bytes:
    encoded = os.fsencode(name)
    if encoded in (b"", b".", b"..") or b"/" in encoded or b"\0" in encoded:
        raise ValueError(f"{name!r} is no name of a file")
    return encoded


def _clear(parent: int, name: bytes) -> None:
    """Remove what stands in the way; what takes too long, or can't be removed, gets another name beside it.

    Raises:
        OSError: it can't be moved either.
    """
    try:
        remove_beneath(parent, name, seconds=CLEAR_SECONDS)
    except OSError:
        os.rename(name, f".replaced-{secrets.token_hex(8)}".encode(), src_dir_fd=parent, dst_dir_fd=parent)


def _entered(parent: int, name: bytes, *, fresh: bool) -> int:
    """Return a descriptor of a directory that we may write in, made anew where something else stands there."""
    if fresh:
        _clear(parent, name)
    opener = choose_opener()
    for _ in range(MAX_TRIES):
        try:
            os.mkdir(name, PRIVATE_DIRECTORY, dir_fd=parent)
        except FileExistsError:
            if fresh:
                _clear(parent, name)
                continue
        try:
            fd = opener(parent, name, DIRECTORY_PATH | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            _clear(parent, name)
            continue
        try:
            if stat.S_IMODE(os.fstat(fd).st_mode) & PRIVATE_DIRECTORY != PRIVATE_DIRECTORY:
                os.chmod(f"/proc/self/fd/{fd}", PRIVATE_DIRECTORY)
        except BaseException:
            os.close(fd)
            raise
        return fd
    raise OSError(errno.EBUSY, "its name is changed all the time")
