"""The repository in a lent directory: whether it can be shown."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sublet.disk.openat2 import DIRECTORY_PATH, open_real
from sublet.disk.plain_file import read_beginning
from sublet.protocol.bounds import GitMode
from sublet.workspace.git.config import MAX_CONFIG_BYTES, read_config
from sublet.workspace.git.rules import REPOSITORY

_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

NO_REPOSITORY: Final = "it has no .git"
ELSEWHERE: Final = (
    ".git is a file here, which points to a repository elsewhere (a linked worktree or a submodule), and that is not "
    "lent; without --git, --transport git gives the agent a repository of its own, and --result-branch brings what it "
    "does to yours"
)
OTHER_STORAGE: Final = "its references are kept in a way that is not served"


@dataclass(frozen=True, slots=True)
class Repository:
    """What a lease has to know of ``.git`` at the root of a directory.

    ``why_hidden`` tells why it can't be shown, and is empty where it can. ``copies`` are what is served in place of
    hidden files, as ``LentDirectory.copies``.
    """

    why_hidden: str = ""
    copies: dict[tuple[bytes, ...], bytes] | None = None

    def shown(self, git: GitMode) -> GitMode:
        """Return what is shown of it where ``git`` is asked for."""
        return "hidden" if self.why_hidden else git


def look_at(root: Path) -> Repository:
    """Return what there is to know of the repository at ``root``, a real path; it blocks on the disk."""
    try:
        top = open_real(root, DIRECTORY_PATH)
    except OSError:
        return Repository(NO_REPOSITORY)
    try:
        if not stat.S_ISDIR(os.stat(REPOSITORY, dir_fd=top, follow_symlinks=False).st_mode):
            return Repository(ELSEWHERE)
        content = _content(top)
    except FileNotFoundError:
        return Repository(NO_REPOSITORY)
    except OSError as exc:
        return Repository(f"its configuration can't be read: {exc.strerror}")
    finally:
        os.close(top)
    config = read_config(content)
    if config.ref_storage != "files":
        return Repository(OTHER_STORAGE)
    return Repository(copies={(REPOSITORY, b"config"): config.copy})


def _content(top: int) -> bytes:
    """Return what ``.git/config`` holds, at most what is allowed; nothing where it is missing."""
    repository = os.open(REPOSITORY, DIRECTORY_PATH | os.O_NOFOLLOW, dir_fd=top)
    try:
        fd = os.open(b"config", _OPEN, dir_fd=repository)
    except FileNotFoundError:
        return b""
    finally:
        os.close(repository)
    return read_beginning(fd, MAX_CONFIG_BYTES)
