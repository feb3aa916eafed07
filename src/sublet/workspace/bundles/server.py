"""What a delegator does for one transfer by ``git``: bundles of snapshots out, a bundle of the result in."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from sublet.disk.removal import remove_tree
from sublet.workspace.archive.download import MAX_ENTRIES, MAX_SECONDS, Branch
from sublet.workspace.archive.tar_format import END, Entry, MalformedTar, Parts, TarLimits, header, padding
from sublet.workspace.archive.tar_reader import PlannedTar
from sublet.workspace.archive.tree_pack import TreePacker
from sublet.workspace.archive.upload import Upload
from sublet.workspace.archive.wire import MalformedFrame, Planned, Report, plan_frames, read_plan
from sublet.workspace.bundles.exchange import GitExchange
from sublet.workspace.bundles.runs import GitRuns
from sublet.workspace.bundles.taken import Taken, parents
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.quota import Quota
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from sublet.workspace.view.export_view import META
from sublet.workspace.view.walk import Budget

SUFFIX: Final = b".bundle"
MAX_BUNDLE_BYTES: Final = 2 << 30
"""Of one result, and of what it holds when it is unpacked."""
MAX_TREES_BYTES: Final = 64 << 20
"""Of the trees and commits of one result, beside its files."""
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
        sandbox: what git runs in.
    """

    def __init__(
        self,
        branches: list[Branch],
        meta: Mapping[bytes, bytes],
        modified_ns: int,
        scratch: Path,
        sandbox: GitSandbox,
    ) -> None:
        self._branches = branches
        self._runs = GitRuns(sandbox)
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
        with contextlib.suppress(OSError):  # what stays is cleared when the daemon starts
            remove_tree(self._scratch)

    def _stream(self, meta: Mapping[bytes, bytes], modified_ns: int) -> Generator[bytes]:
        packer = TreePacker(Budget(MAX_ENTRIES, MAX_SECONDS))
        yield b"".join(packer.files(META, meta, modified_ns))
        for number, branch in enumerate(self._branches):
            repository = GitExchange(self._scratch / str(number), self._runs)
            repository.create()
            repository.snapshot(branch.root_fd, branch.rules, Budget(MAX_ENTRIES, MAX_SECONDS))
            with repository.bundle() as file:
                size = os.fstat(file.fileno()).st_size
                yield header(Entry((branch.name + SUFFIX,), "file", 0o600, size, modified_ns))
                left = size
                while left and (piece := file.read(min(left, _CHUNK))):
                    left -= len(piece)
                    yield piece
                yield padding(size)
        yield packer.end()


def _directory(scratch: Path) -> Path:
    """Return a directory for one transfer, below that which the daemon clears when it starts."""
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="git-", dir=scratch))


@dataclass(frozen=True, slots=True)
class _Change:
    """One change of a result: the blob of its content, where it has one, and the bytes of that."""

    planned: Planned
    entry: Entry | None = None
    blob: str = ""
    size: int = 0


class GitUpload:
    """A result that comes back as bundles, and becomes the same plan and stream as that of an archive.

    Args:
        branches: the directories that may be changed, as they were sent; closed with it.
        trees: the same for writing, by name; closed with it.
        quota: what the lease may add.
        is_live: tells whether the lease still holds.
        scratch: private directory, in which it makes one of its own.
        sandbox: what git runs in.
    """

    def __init__(
        self,
        branches: list[Branch],
        trees: Mapping[bytes, WritableFs],
        quota: Quota,
        is_live: Callable[[], bool],
        scratch: Path,
        sandbox: GitSandbox,
    ) -> None:
        self._branches = {branch.name: branch for branch in branches}
        self._upload = Upload(trees, quota, is_live, keeps_modes=True)
        self._quota = quota
        self._runs = GitRuns(sandbox)
        self._scratch = _directory(scratch)
        self._planned: dict[Parts, int] = {}
        self._reader = PlannedTar(self)
        self._file: IO[bytes] | None = None

    def plan(self, payload: bytes) -> None:
        """``Upload.plan``: one bundle for each directory."""
        for planned in read_plan(payload):
            name = planned.parts[0].removesuffix(SUFFIX)
            known = planned.parts == (name + SUFFIX,) and name in self._branches and planned.parts not in self._planned
            if not known or planned.kind != "file" or planned.size > MAX_BUNDLE_BYTES:
                raise MalformedFrame("a bundle that is not expected, or too large")
            self._planned[planned.parts] = planned.size
            if sum(self._planned.values()) > MAX_BUNDLE_BYTES:
                raise MalformedFrame("bundles that are too large together")

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
        results: list[tuple[bytes, GitExchange, Taken]] = []
        for number, (name, branch) in enumerate(self._branches.items()):
            if (name + SUFFIX,) in self._planned:
                repository = GitExchange(self._scratch / str(number), self._runs)
                repository.create()
                base = repository.snapshot(branch.root_fd, branch.rules, Budget(MAX_ENTRIES, MAX_SECONDS))
                with open(self._bundle(name), "rb") as bundle:
                    room = self._room(base.bytes)
                    taken = repository.take(bundle, max_bytes=room, max_names=MAX_ENTRIES, base=base.commit)
                results.append((name, repository, taken))
        changes = [(repository, _planned(name, taken)) for name, repository, taken in results]
        for piece in plan_frames(change.planned for _, planned in changes for change in planned):
            self._upload.plan(piece[_FRAME_HEAD:])
        self._upload.approve()
        for repository, planned in changes:
            self._write(repository, planned)
        self._upload.receive(END)
        return self._upload.finish()

    def _room(self, before: int) -> int:
        """Return how many bytes one result may come to: what the lease may still add, and what there was ``before``."""
        if self._quota.max_bytes is None:
            return MAX_BUNDLE_BYTES
        room = max(0, self._quota.max_bytes - self._quota.bytes)
        return min(MAX_BUNDLE_BYTES, room + before + MAX_TREES_BYTES)

    def _write(self, repository: GitExchange, changes: list[_Change]) -> None:
        """Hand what a result changes to the upload, with the contents, in order."""
        filled = [change for change in changes if change.blob]
        contents = repository.contents([(change.blob, change.size) for change in filled])
        with closing(contents):
            for change in changes:
                if change.entry is None:
                    continue
                content = next(contents) if change.blob else None
                if content is not None and change.entry.kind == "symlink":
                    entry = replace(change.entry, target=content.read(change.size))
                    self._upload.receive(header(entry))
                    continue
                self._upload.receive(header(change.entry))
                left = change.entry.size
                while content is not None and left:
                    piece = content.read(min(left, _CHUNK))
                    if not piece:
                        raise MalformedTar("a bundle lost a part of its content")
                    left -= len(piece)
                    self._upload.receive(piece)
                self._upload.receive(padding(change.entry.size))

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
        with contextlib.suppress(OSError):  # what stays is cleared when the daemon starts
            remove_tree(self._scratch)

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
        return self._scratch / f"{list(self._branches).index(name)}.bundle"


def _planned(name: bytes, taken: Taken) -> list[_Change]:
    """Return what a result changes, in the order in which it can be made: removals, directories, files and links."""
    now = time.time_ns()
    there = set(taken.directories)
    gone: list[_Change] = []
    made: list[_Change] = []
    for change in taken.changes:
        parts = (name, *change.path.split(b"/"))
        if change.mode is None:
            gone.append(_Change(Planned(parts, "deleted")))
            continue
        if change.mode not in _MODES:
            continue  # a repository in the repository, of which nothing but its name is here
        for above in parents(change.path):
            if above not in there:
                there.add(above)
                directory = (name, *above.split(b"/"))
                made.append(_Change(Planned(directory, "directory"), Entry(directory, "directory", 0o755, 0, now)))
        size = taken.sizes[change.blob]
        if change.mode == _LINK:
            if size > MAX_TARGET_BYTES:
                raise MalformedTar("a link's target is too long")
            entry = Entry(parts, "symlink", 0o777, 0, now)
            made.append(_Change(Planned(parts, "symlink"), entry, change.blob, size))
        else:
            entry = Entry(parts, "file", change.mode & 0o777, size, now)
            made.append(_Change(Planned(parts, "file", size), entry, change.blob, size))
    return [*gone, *made]
