"""What a lender does for one transfer of the transport ``git``: bundles of snapshots out, a bundle of the result in."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from sublet.workspace.archive.server import MAX_ENTRIES, MAX_SECONDS, Branch, Upload
from sublet.workspace.archive.tar_format import END, Entry, MalformedTar, Parts, PlannedTar, TarLimits, header, padding
from sublet.workspace.archive.tree_pack import TreePacker
from sublet.workspace.archive.wire import MalformedFrame, Planned, Report, plan_frames, read_plan
from sublet.workspace.bundles.exchange import Changed, GitExchange, parents
from sublet.workspace.bundles.runs import GitRuns
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.quota import Quota
from sublet.workspace.view.export_view import META
from sublet.workspace.view.walk import Budget

SUFFIX: Final = b".bundle"
MAX_BUNDLE_BYTES: Final = 2 << 30
"""Of one result, and of what it holds when it is unpacked."""
MAX_TARGET_BYTES: Final = 4096
"""Of a symbolic link: the kernel makes none whose target is longer."""
_FRAME_HEAD: Final = 5
_CHUNK: Final = 256 * 1024
_LINK: Final = 0o120000
_MODES: Final = (_LINK, 0o100644, 0o100755)


class GitDownload:
    """The view as a tar stream in which every directory is a bundle.

    Args:
        branches, meta, modified_ns: those of ``Download``.
        scratch: private directory, in which it makes one of its own.
    """

    def __init__(self, branches: list[Branch], meta: Mapping[bytes, bytes], modified_ns: int, scratch: Path) -> None:
        self._branches = branches
        self._runs = GitRuns()
        self._scratch = _directory(scratch)
        self._pieces = self._stream(meta, modified_ns)

    def step(self) -> bytes | None:
        """``Download.step``."""
        return next(self._pieces, None)

    def halt(self) -> None:
        """``Download.halt``."""
        self._runs.halt()

    def close(self) -> None:
        """``Download.close``."""
        self._pieces.close()
        for branch in self._branches:
            os.close(branch.root_fd)
        self._branches = []
        self._scratch.cleanup()

    def _stream(self, meta: Mapping[bytes, bytes], modified_ns: int) -> Generator[bytes]:
        packer = TreePacker(Budget(MAX_ENTRIES, MAX_SECONDS))
        yield b"".join(packer.files(META, meta, modified_ns))
        for number, branch in enumerate(self._branches):
            bundle = Path(self._scratch.name) / f"{number}.bundle"
            repository = GitExchange(Path(self._scratch.name) / str(number), self._runs)
            repository.create()
            repository.snapshot(branch.root_fd, branch.rules, Budget(MAX_ENTRIES, MAX_SECONDS))
            repository.bundle(bundle)
            size = bundle.stat().st_size
            yield header(Entry((branch.name + SUFFIX,), "file", 0o600, size, modified_ns))
            with open(bundle, "rb") as file:
                while piece := file.read(_CHUNK):
                    yield piece
            yield padding(size)
        yield packer.end()


def _directory(scratch: Path) -> tempfile.TemporaryDirectory[str]:
    """Return a directory for one transfer, below that which the daemon clears when it starts."""
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="git-", dir=scratch, ignore_cleanup_errors=True)


@dataclass(frozen=True, slots=True)
class _Change:
    """One change of a result, and where its content is."""

    repository: GitExchange
    planned: Planned
    entry: Entry | None = None
    blob: str = ""


class GitUpload:
    """A result that comes back as bundles, and becomes the same plan and stream as that of an archive.

    Args:
        branches: the directories that may be changed, as they were sent; closed with it.
        trees: the same for writing, by name; closed with it.
        quota: what the lease may add.
        is_live: tells whether the lease still holds.
        scratch: private directory, in which it makes one of its own.
    """

    def __init__(
        self,
        branches: list[Branch],
        trees: Mapping[bytes, WritableFs],
        quota: Quota,
        is_live: Callable[[], bool],
        scratch: Path,
    ) -> None:
        self._branches = {branch.name: branch for branch in branches}
        self._upload = Upload(trees, quota, is_live, keeps_modes=True)
        self._runs = GitRuns()
        self._scratch = _directory(scratch)
        self._planned: dict[Parts, int] = {}
        self._reader = PlannedTar(self)
        self._file: IO[bytes] | None = None

    def plan(self, payload: bytes) -> None:
        """``Upload.plan``: one bundle for each directory."""
        for planned in read_plan(payload):
            name = planned.parts[0].removesuffix(SUFFIX)
            known = len(planned.parts) == 1 and name in self._branches and planned.parts not in self._planned
            if not known or planned.kind != "file" or planned.size > MAX_BUNDLE_BYTES:
                raise MalformedFrame("a bundle that is not expected, or too large")
            self._planned[planned.parts] = planned.size

    def approve(self) -> None:
        """``Upload.approve``: what is in the bundles is held to the quota when they are complete."""
        largest = max(self._planned.values(), default=0)
        self._reader.approve(TarLimits(len(self._planned), sum(self._planned.values()), largest))

    def receive(self, data: bytes) -> None:
        """``Upload.receive``."""
        self._reader.feed(data)

    def finish(self) -> Report:
        """``Upload.finish``: check the bundles, and make the changes that they hold."""
        self._reader.finish()
        changes: list[_Change] = []
        for number, (name, branch) in enumerate(self._branches.items()):
            bundle = self._bundle(name)
            if bundle.exists():
                repository = GitExchange(Path(self._scratch.name) / str(number), self._runs)
                repository.create()
                base = repository.snapshot(branch.root_fd, branch.rules, Budget(MAX_ENTRIES, MAX_SECONDS))
                result = repository.take(bundle, max_bytes=MAX_BUNDLE_BYTES, max_names=MAX_ENTRIES, base=base)
                changes += _planned(name, repository, base, repository.changes(base, result))
        for piece in plan_frames(change.planned for change in changes):
            self._upload.plan(piece[_FRAME_HEAD:])
        self._upload.approve()
        for change in changes:
            if change.entry is not None:
                self._upload.receive(header(change.entry))
                if change.entry.size:
                    with change.repository.open_content(change.blob) as content:
                        while piece := content.read(_CHUNK):
                            self._upload.receive(piece)
                self._upload.receive(padding(change.entry.size))
        self._upload.receive(END)
        return self._upload.finish()

    def halt(self) -> None:
        """``Upload.halt``."""
        self._runs.halt()
        self._upload.halt()

    def close(self) -> None:
        """``Upload.close``."""
        if self._file is not None:
            self._file.close()
            self._file = None
        for branch in self._branches.values():
            os.close(branch.root_fd)
        self._branches = {}
        self._upload.close()
        self._scratch.cleanup()

    # tar_format.TarSink

    def begin(self, entry: Entry) -> None:
        """Take a bundle."""
        if self._planned.get(entry.parts) != entry.size or entry.kind != "file":
            raise MalformedTar("an entry is not what was planned")
        self._file = open(self._bundle(entry.parts[0].removesuffix(SUFFIX)), "xb")  # noqa: SIM115 - closed by ``end``

    def data(self, piece: memoryview) -> None:
        """Write a piece of it."""
        assert self._file is not None
        self._file.write(piece)

    def end(self) -> None:
        """Complete it."""
        assert self._file is not None
        self._file.close()
        self._file = None

    def _bundle(self, name: bytes) -> Path:
        return Path(self._scratch.name) / f"{list(self._branches).index(name)}.bundle"


def _planned(name: bytes, repository: GitExchange, base: str, changes: list[Changed]) -> list[_Change]:
    """Return what a result changes, in the order in which it can be made: removals, directories, files and links."""
    now = time.time_ns()
    there = repository.directories(base)
    sizes = repository.sizes([change.blob for change in changes if change.mode in _MODES])
    gone: list[_Change] = []
    made: list[_Change] = []
    for change in changes:
        parts = (name, *change.path.split(b"/"))
        if change.mode is None:
            gone.append(_Change(repository, Planned(parts, "deleted")))
            continue
        if change.mode not in _MODES:
            continue  # a repository in the repository, of which nothing but its name is here
        for above in parents(change.path):
            if above not in there:
                there.add(above)
                directory = (name, *above.split(b"/"))
                entry = Entry(directory, "directory", 0o755, 0, now)
                made.append(_Change(repository, Planned(directory, "directory"), entry))
        if change.mode == _LINK:
            entry = Entry(parts, "symlink", 0o777, 0, now, repository.content(change.blob, MAX_TARGET_BYTES))
            made.append(_Change(repository, Planned(parts, "symlink"), entry))
        else:
            entry = Entry(parts, "file", change.mode & 0o777, sizes[change.blob], now)
            made.append(_Change(repository, Planned(parts, "file", entry.size), entry, change.blob))
    return [*gone, *made]
