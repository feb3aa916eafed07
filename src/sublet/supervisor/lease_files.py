"""The files of a lease, as a provider reaches them that governs file tools: confined, bounded, and never blocking.

The daemon passes in the real one. Paths are components below the view: first the name of the resource, or of the
directory that tells about the task. Every call may raise ``OSError``, whose text names no path, and ``TimeoutError``
where the mount does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sublet.supervisor.job import Job

ViewPath = tuple[str, ...]


class FilePart(Protocol):
    """Some bytes of a file."""

    @property
    def data(self) -> bytes:
        """The bytes."""

    @property
    def size(self) -> int:
        """How many the whole file has."""


class LeaseEntry(Protocol):
    """A name in a directory."""

    @property
    def name(self) -> str:
        """The last part of its path, as a client of the view sees it."""

    @property
    def kind(self) -> str:
        """``file``, ``directory``, ``link`` or ``other``."""

    @property
    def size(self) -> int:
        """In bytes."""


class LeaseListing(Protocol):
    """Entries of a directory."""

    @property
    def entries(self) -> Sequence[LeaseEntry]:
        """In order of their names."""

    @property
    def more(self) -> bool:
        """Whether not all are here."""


class Match(Protocol):
    """A line of a file that holds what was searched for."""

    @property
    def path(self) -> ViewPath:
        """The file."""

    @property
    def line(self) -> int:
        """Counted from one; 0 where only the name matched."""

    @property
    def text(self) -> str:
        """The line, bounded."""


class Matches(Protocol):
    """What a search found."""

    @property
    def found(self) -> Sequence[Match]:
        """In order of the files."""

    @property
    def files(self) -> int:
        """How many files were looked at."""

    @property
    def left_out(self) -> int:
        """How many files were not looked at since they may not be told of."""

    @property
    def more(self) -> bool:
        """Whether it ended at a bound before everything was looked at."""


class LeaseFiles(Protocol):
    """Reads, changes and searches the files of one lease for an agent that has no mount of its own.

    All methods raise ``OSError`` as the lease's own file system does: for a hidden name as for one that is not there.
    """

    async def read(self, path: ViewPath, offset: int, size: int) -> FilePart:
        """Return up to ``size`` bytes from ``offset`` of a regular file."""

    async def write(self, path: ViewPath, data: bytes) -> bool:
        """Make ``data`` the whole content of a regular file, with the directories above it, and tell if it is new."""

    async def list(self, path: ViewPath, limit: int) -> LeaseListing:
        """Return at most ``limit`` entries of a directory."""

    async def search(
        self, path: ViewPath, text: str, name: str, limit: int, *, ignore_case: bool, may: Callable[[ViewPath], bool]
    ) -> Matches:
        """Return lines that hold ``text``, of files below ``path`` whose name matches the glob ``name``.

        Files of which ``may`` says no are not opened; it is called in a thread.

        An empty ``text`` finds the files themselves. Links are not followed, files that are no text are left out.
        """

    async def move(self, old: ViewPath, new: ViewPath) -> None:
        """Rename a file or directory to a name that is free, in the same resource."""

    async def delete(self, path: ViewPath) -> None:
        """Remove a file, a link or an empty directory."""

    async def aclose(self) -> None:
        """Let go of the mount."""


OpenFiles = Callable[[Job], LeaseFiles]
"""Returns the files of a job's lease; nothing is looked at before the first call."""
