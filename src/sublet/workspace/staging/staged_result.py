"""What a staged result is: the private view an executor works in, what it changed there, and what became of it."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from sublet.disk.openat2 import DIRECTORY_PATH, open_real
from sublet.protocol.change_counts import ChangeCounts, ChangeSetStatus
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_name

StagingKind = Literal["reflink", "copy", "overlay"]
"""How the private view is made: blocks shared with the directory until they are written, a plain copy, or a layer."""

ConflictKind = Literal[
    "content", "binary", "both_added", "deleted_here", "deleted_there", "type", "directory", "refused"
]
"""Why a change was not applied.

``content`` and ``binary``: both sides changed the file. ``both_added``: both made one of this name. ``deleted_here``:
the person removed what the executor changed; ``deleted_there``: the other way round. ``type``: file against link.
``directory``: one side has a directory where the other has a file. ``refused``: a name or link that is never applied.
"""

PathChange = Literal["added", "changed", "deleted", "renamed", "mode"]

_KEY = Pattern(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}(?:\.[A-Za-z0-9][A-Za-z0-9_-]{0,63})?\Z")


class OverlayRoot:
    """The root of an overlay, which is there for as long as this is open.

    Args:
        fd: its descriptor, owned by this object from now on.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def duplicate(self) -> int:
        """Return a descriptor of the root that becomes the caller's.

        Raises:
            OSError: ``ESTALE`` after ``close``.
        """
        with self._lock:
            if self._fd < 0:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            return os.open(".", DIRECTORY_PATH, dir_fd=self._fd)

    def close(self) -> None:
        """Let go of it; duplicates stay. Idempotent."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


@dataclass(frozen=True, slots=True)
class StagedView:
    """A private view of ``root``, the real directory, which its delegation alone writes to.

    ``path`` is where a copy lies; an overlay (``layer``) has none that could be named: open either by ``open_root``.
    """

    key: str
    root: Path
    kind: StagingKind
    path: Path | None
    layer: OverlayRoot | None = None

    def open_root(self) -> int:
        """Return a new descriptor of the view's root (``O_PATH``), which becomes the caller's.

        Raises:
            OSError: the view is not there any more.
        """
        if self.path is not None:
            return open_real(self.path, DIRECTORY_PATH)
        assert self.layer is not None
        return self.layer.duplicate()

    def close(self) -> None:
        """Let go of what is held open for the view; what is in it stays."""
        if self.layer is not None:
            self.layer.close()


@dataclass(frozen=True, slots=True)
class ChangedPath:
    """One changed file of a change set. ``lines_*`` are None for what is not text, or was not counted within bounds.

    ``mode_*`` are the permissions; None where there was no file, for links, and where they are not known.
    """

    path: bytes
    change: PathChange
    renamed_from: bytes | None = None
    lines_added: int | None = None
    lines_deleted: int | None = None
    mode_before: int | None = None
    mode_after: int | None = None

    @property
    def shown(self) -> str:
        """The path in a form that is safe to show."""
        return clean_name(self.path)


DirectoryKind = Literal["added", "deleted", "mode"]


@dataclass(frozen=True, slots=True)
class DirectoryChange:
    """One directory of a change set and its permissions before and after; None where there was no directory."""

    path: bytes
    before: int | None
    after: int | None

    @property
    def change(self) -> DirectoryKind:
        """What became of it."""
        return "added" if self.before is None else "deleted" if self.after is None else "mode"

    @property
    def shown(self) -> str:
        """The path in a form that is safe to show, with a slash at its end."""
        return clean_name(self.path) + "/"


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """What one staged delegation changed in its view of ``root``.

    ``baseline`` and ``result`` are snapshots of the shadow repository of ``root``. ``unread`` are paths that could not
    be read in the view, with the reason; they are not part of the result.
    """

    key: str
    root: Path
    baseline: str
    result: str
    status: ChangeSetStatus
    counts: ChangeCounts
    files: tuple[ChangedPath, ...] = ()
    unread: tuple[tuple[bytes, str], ...] = ()
    directories: tuple[DirectoryChange, ...] = ()


DirectoryOutcome = Literal["clean", "merged", "conflict", "present", "stays"]
"""``stays``: the executor removed it, and it holds what the executor never saw."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """One change that is left out, and why. The person's file stays as it is.

    ``detail`` is one sentence. ``theirs`` is where the executor's version lies in the state directory until the result
    is discarded (for an undo: the version from before); None where there is none. ``kept_as`` is the name below the
    directory under which it was put beside the person's file; None where it was not.
    """

    path: bytes
    kind: ConflictKind
    detail: str
    theirs: Path | None = None
    kept_as: bytes | None = None

    @property
    def shown(self) -> str:
        """The path in a form that is safe to show."""
        return clean_name(self.path)


@dataclass(frozen=True, slots=True)
class Preview:
    """What ``apply`` would do to the directory as it is now.

    ``clean`` are the paths that would become as the executor left them, ``merged`` those that get both sides' changes,
    ``present`` those that the directory has already. All of these are files and links; ``directories`` says of each
    changed directory what becomes of it. ``mass_deletion`` says why the deletions have to be allowed
    explicitly; empty where they don't.
    """

    clean: tuple[bytes, ...] = ()
    merged: tuple[bytes, ...] = ()
    present: tuple[bytes, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    mass_deletion: str = ""
    directories: dict[bytes, DirectoryOutcome] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Applied:
    """What ``apply`` or ``undo`` did: the files and directories that it changed, and what it left out.

    A directory that was made for a file in it, or went with the files in it, is told by those.

    Without ``partial``, a conflict means that nothing was changed at all.
    """

    paths: tuple[bytes, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    directories: tuple[bytes, ...] = ()

    @property
    def shown(self) -> list[str]:
        """The changed paths in a form that is safe to show, directories with a slash at their end."""
        return [*map(clean_name, self.paths), *(clean_name(path) + "/" for path in self.directories)]


MAX_CHANGED_FILES: Final = 100_000
"""Changes of one change set that can be applied."""


def is_key(name: str) -> bool:
    """Tell whether ``name`` can be that of a staged result: a delegation id, or ``ID.RESOURCE``."""
    return _KEY.match(name) is not None


def checked_key(key: str) -> str:
    """Return ``key`` where it can be a file name: a delegation id, or ``ID.RESOURCE``.

    Raises:
        SubletError: ``NOT_FOUND`` otherwise.
    """
    if not is_key(key):
        raise SubletError(
            LocalCode.NOT_FOUND, f"there is no staged result named {key[:80]!r}", "`sublet ls` names the delegations."
        )
    return key


def no_result(key: str) -> SubletError:
    """Return the error for a staged result that is not there."""
    return SubletError(
        LocalCode.NOT_FOUND,
        f"there is no staged result of {key}",
        "It was discarded or pruned, or the delegation was not staged.",
    )
