"""What the data plane is told and tells: exports, their rules and limits, use, and what a mount needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol

from sublet.protocol.bounds import TransportName
from sublet.workspace.kept.log import KeptPlace
from sublet.workspace.own_names import OwnNames, Step
from sublet.workspace.quota import Quota, QuotaMet

AccessMode = Literal["ro", "rw"]

WORKSPACE: Final = "workspace"
"""Name in the view of the first, and mostly the only, directory of a lease."""
META: Final = "meta"
"""Name in the view of the read-only directory that tells about the task."""


class ViewRules(Protocol):
    """Which names of a workspace an executor may see and change; one engine for scan, export and audit.

    Paths are sequences of raw name components below the workspace root; the root is the empty sequence.
    """

    def hidden(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name neither lists nor opens, nor may be created."""

    def hides(self) -> bool:
        """Tell whether any name may be hidden at all."""

    def notable(self, name: bytes) -> bool:
        """Tell whether some rule may hide or lock a name that is called so, wherever it is."""

    def secret(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name is hidden for what it may hold, so that a lease may make its own where nothing is."""

    def left_out(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the delegator chose to leave the name out; then it is hidden, whatever it is."""

    def directory_only(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name is there, or may be created, only as a directory; anything else of it is hidden."""

    def locked(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name may be read, but neither written, created, renamed nor removed."""

    def packed(self, parts: Sequence[bytes]) -> bool:
        """Tell whether names are free in this directory that are locked in others, since packages carry them."""

    def read_only(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name is ``locked`` since only others are lent for writing."""

    def only_adds(self) -> bool:
        """Tell whether the lease may remove, rename and replace nothing but what it has made itself."""

    def kept(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name may be created, but is neither changed nor removed once it is there."""

    def checked(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name is something of a repository that git believes: it is looked at before it is taken."""

    def draft(self, parts: Sequence[bytes]) -> bool:
        """Tell whether git is still writing what has this name: only what the lease made there may be changed."""

    def may_be_directory(self, parts: Sequence[bytes]) -> bool:
        """Tell whether a name that is ``checked`` may also be made as a directory."""

    def bars_links(self, parts: Sequence[bytes]) -> bool:
        """Tell whether no symbolic link may be put here."""

    def guards_below(self, parts: Sequence[bytes]) -> bool:
        """Tell whether a rule is anchored below this directory, so that moving the directory would move the name."""

    def without_repository(self) -> ViewRules:
        """Return the rules of what is compared file by file, which the delegator's repository data never is."""


class Remembering(Protocol):
    """What keeps in mind for the next process what a lease does. Nothing here raises."""

    def root(self, name: str, identity: tuple[int, int]) -> None:
        """Remember device and inode of the directory that is served as ``name``."""

    def touch(self, name: str, path: bytes) -> bool:
        """Remember that ``path`` below the resource ``name`` was changed; False where that can't be."""

    def quota_met(self, met: QuotaMet) -> None:
        """Remember that a change was refused for ``met``."""

    def returning(self) -> None:
        """Remember that changes begin to come back, so that what came back before is not the result any more."""

    def returned(self, refused: Sequence[str], refused_count: int) -> None:
        """Remember that all changes have come back, but for ``refused_count``, of which ``refused`` are told."""

    def count(self, usage: LeaseUsage) -> None:
        """Remember the counters as they are now."""

    def own(self, name: str, step: Step, text: bytes) -> None:
        """Remember a step of what the lease made in ``name`` under names that are hidden: ``OwnNames.replay``."""

    def mark(self, name: str, path: bytes) -> None:
        """Remember that an index of ``name`` had git not look at ``path``."""

    def denied(self, line: str) -> None:
        """Remember a change that was refused for a rule, with the reason, as it was told."""

    def overflow(self) -> None:
        """Remember that not every changed path is known."""


@dataclass(frozen=True, slots=True)
class ExportLimits:
    """Bounds of one lease, over all that it lends. ``None`` is no bound of ours."""

    max_total_bytes: int | None = None
    max_files: int | None = None
    max_file_bytes: int | None = None
    max_connections: int = 4
    max_channels: int = 4
    max_handles: int = 1024


@dataclass(frozen=True, slots=True)
class LentDirectory:
    """One directory of a lease: its name in the view, its real path, how it is lent, and which of its names show.

    ``copies`` are contents that are served, read-only, under hidden names, by the path below the directory.
    ``open_root`` opens what is served in its place, where that is a private view to which no path may lead; the
    descriptor (``O_PATH``) becomes the caller's, and ``OSError`` says that it is not there any more. ``kept`` is where
    it is kept what the lease overwrites, as ``open_place`` found it; None where nothing is kept.
    """

    name: str
    path: Path
    access_mode: AccessMode
    rules: ViewRules
    copies: Mapping[tuple[bytes, ...], bytes] = field(default_factory=dict)
    open_root: Callable[[], int] | None = None
    kept: KeptPlace | None = None


@dataclass(frozen=True, slots=True)
class Export:
    """One lease's view: what is served, to whom, how and for how long (DESIGN 4.6).

    ``lease_id`` is the SSH user name; ``resources`` are the directories, at least one, none of which overlaps another;
    ``public_key`` is the OpenSSH line that may log in; ``seconds`` counts from the moment it is opened, on the
    monotonic clock; ``meta`` are the files of ``/meta`` by name. ``limits`` hold for all directories together;
    ``transport`` is the only one that the key can use. ``on_quota_met`` is called, where the request is served, each
    time that a change is refused for the lease's quota. ``on_connected`` is called while the lease holds: with True
    when its first connection is there, with False when its last one is gone. ``on_denied`` is called, bounded in
    number, with each change that was refused for a rule, and why. ``memory`` is told what the lease does; ``before``
    is what it did under an earlier process, with which it goes on. ``peer`` names who is served: all leases of one peer
    share the loop and the memory as one does; by default the lease counts alone.
    ``must_keep`` refuses each change of what can't be kept before.
    """

    lease_id: str
    resources: tuple[LentDirectory, ...]
    public_key: str
    seconds: float
    meta: Mapping[str, bytes] = field(default_factory=dict)
    limits: ExportLimits = ExportLimits()
    transport: TransportName = "sshfs"
    on_quota_met: Callable[[QuotaMet], None] | None = None
    on_connected: Callable[[bool], None] | None = None
    on_denied: Callable[[str], None] | None = None
    memory: Remembering | None = None
    before: LeaseUsage | None = None
    peer: str = ""
    must_keep: bool = False


@dataclass(slots=True)
class LeaseUsage:
    """What a lease's connections did so far.

    ``touched`` are, by the name of the resource, the raw paths below it that were written, created, removed, renamed or
    otherwise changed, bounded; a directory that was renamed is there by its old and its new path only. ``quota`` counts
    what was added, and knows whether a change was refused for that. ``roots`` are device and inode of the directories
    that were served, by name, whatever their paths lead to meanwhile. ``returned`` tells whether all changes of a
    transport that brings them at the end have arrived; ``refused`` are those that may not be made here, as text that is
    safe to show, bounded, and ``refused_count`` how many there were. ``marks`` are, by the name of the resource, the
    raw paths that an index had git not look at, bounded; those marks were not taken over. ``own`` are, likewise, what
    the lease made under names that are hidden where nothing was. ``denied`` are changes that were refused for a rule,
    each with the reason, as text that is safe to show, bounded, and ``denied_count`` how many there were.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    operations: int = 0
    connections: int = 0
    touched: dict[str, set[bytes]] = field(default_factory=dict)
    touched_overflow: bool = False
    quota: Quota = field(default_factory=Quota)
    roots: dict[str, tuple[int, int]] = field(default_factory=dict)
    returned: bool = False
    refused: list[str] = field(default_factory=list)
    refused_count: int = 0
    marks: dict[str, set[bytes]] = field(default_factory=dict)
    own: dict[str, OwnNames] = field(default_factory=dict)
    denied: list[str] = field(default_factory=list)
    denied_count: int = 0

    _paths_forgotten: int = 0

    @property
    def files_touched(self) -> int:
        """How many paths were changed."""
        return self._paths_forgotten + sum(map(len, self.touched.values()))

    def forget_paths(self) -> None:
        """Keep no path any more, and how many were changed: what tells of the lease is made. Idempotent.

        Parts of a lease refer to one another, so that Python keeps them until its collector comes by.
        """
        self._paths_forgotten = self.files_touched
        for paths in (*self.touched.values(), *self.marks.values()):
            paths.clear()
        self.own.clear()


@dataclass(frozen=True, slots=True)
class MountTarget:
    """Where the delegator's view is reached. Nothing here becomes a path, an option or a command."""

    host: str
    port: int
    user: str
    host_key: str
