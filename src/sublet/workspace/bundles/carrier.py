"""The transport ``git`` on the executor's side: a repository to work in, whose result comes back as a bundle.

Git runs in that repository once, when nobody has worked in it yet. What becomes of the work is then read by our own
walk into a repository that the agent never sees (DESIGN 4.6). A stream holds one bundle for each directory, and
``/meta``. The names of the directories are the delegator's, those of all else are ours. Git runs in the sandbox alone,
since all that it reads is the delegator's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from typing import IO, Final

import structlog

from sublet.disk.openat2 import open_beneath
from sublet.protocol.bounds import MAX_RESOURCES
from sublet.protocol.names import ForeignName, MalformedName, parse_plain_name
from sublet.workspace.archive.carrier import ArchiveCarrier
from sublet.workspace.archive.client import ArchiveChannel
from sublet.workspace.archive.tar_format import END, Entry, MalformedTar, Parts, TarLimits, header, padding
from sublet.workspace.archive.tree_manifest import TreeEntry
from sublet.workspace.archive.tree_pack import AllVisible
from sublet.workspace.archive.unpacked import MAX_SECONDS, MAX_WORK_ENTRIES, UnpackedView
from sublet.workspace.archive.wire import Planned
from sublet.workspace.bundles.exchange import GitExchange
from sublet.workspace.bundles.runs import GitRuns
from sublet.workspace.bundles.server import SUFFIX
from sublet.workspace.confined.fs import OPEN_FILE
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from sublet.workspace.view.export_view import META
from sublet.workspace.view.walk import Budget
from sublet.workspace.work_dirs import WorkDirs

_CHUNK: Final = 256 * 1024

Results = dict[bytes, tuple[IO[bytes], int]]
"""By the name of the directory: its bundle, open, and the size of that."""

log = structlog.get_logger(__name__)


class _WithoutRepository(AllVisible):
    """The rules of a work tree: its own repository is no part of it."""

    def hidden(self, parts: object) -> bool:
        """Tell whether the name is the repository, or in it."""
        return isinstance(parts, tuple) and parts[:1] == (b".git",)


class ClonedView(UnpackedView):
    """One view whose directories are repositories.

    Args:
        place, dirs, descriptor, threads: those of ``UnpackedView``.
        sandbox: what git runs in.
    """

    def __init__(self, place: Path, dirs: WorkDirs, descriptor: int, threads: Executor, sandbox: GitSandbox) -> None:
        super().__init__(place, dirs, descriptor, threads)
        self._runs = GitRuns(sandbox)
        self._arrived: list[ForeignName] = []
        self._repositories: dict[bytes, tuple[GitExchange, str]] = {}
        self._results: Results | None = None

    def _admit(self, entry: Entry) -> None:
        top, *below = entry.parts
        if top == META:
            if entry.kind not in ("file", "directory") or (not below and entry.kind != "directory"):
                raise MalformedTar("a link in /meta")
            return
        if below or entry.kind != "file" or not top.endswith(SUFFIX):
            raise MalformedTar("something beside the bundles of the directories")
        try:
            name = parse_plain_name(top.removesuffix(SUFFIX))
        except MalformedName as error:
            raise MalformedTar(str(error)) from None
        if name.raw == META or name.raw.endswith(SUFFIX):
            raise MalformedTar("a directory has a name that is taken")
        if len(self._arrived) >= MAX_RESOURCES:
            raise MalformedTar(f"more than {MAX_RESOURCES} directories")
        self._arrived.append(name)

    def _arrange(self, limits: TarLimits) -> None:
        self._private.mkdir(mode=0o700)
        for number, name in enumerate(self._arrived):
            own = self._private / str(number)
            own.mkdir(mode=0o700)
            repository = GitExchange(own, self._runs)
            repository.create()
            file = name.raw + SUFFIX
            with os.fdopen(open_beneath(self._root, file, os.O_RDONLY | OPEN_FILE), "rb") as bundle:
                taken = repository.take(bundle, max_bytes=limits.max_bytes, max_names=limits.max_entries)
            os.unlink(file, dir_fd=self._root)
            os.mkdir(name, 0o700, dir_fd=self._root)
            repository.check_out(taken.commit, self.path / name)
            self._repositories[name.raw] = (repository, taken.commit)

    def _stop(self) -> None:
        super()._stop()
        self._runs.halt()

    @property
    def _private(self) -> Path:
        return self.path.with_name(f"{self.path.name}.git")

    def _survey(self, known: Mapping[Parts, TreeEntry], digests: Mapping[Parts, bytes]) -> dict[Parts, TreeEntry]:
        return {}

    async def discard(self) -> None:
        """``UnpackedView.discard``."""
        self._stop()
        for bundle, _ in (self._results or {}).values():
            bundle.close()
        await super().discard()
        if not await asyncio.to_thread(self._dirs.release, self._private):
            log.error("a private directory could not be removed", path=str(self._private))

    async def _send_back(self, channel: ArchiveChannel) -> None:
        if self._results is None:
            self._results = await self._step(self._committed)
        results = self._results
        await channel.plan([Planned((name + SUFFIX,), "file", size) for name, (_, size) in results.items()])
        with closing(_stream(results)) as pieces:
            while (piece := await self._step(next, pieces, None)) is not None:
                await channel.upload(piece)

    def _committed(self) -> Results:
        """Return the bundle of every directory in which anything has changed."""
        found: Results = {}
        for name, (repository, base) in self._repositories.items():
            tree = self._open_branch(name)
            try:
                budget = Budget(MAX_WORK_ENTRIES, MAX_SECONDS)
                bundle = repository.result(tree, _WithoutRepository(), budget, base)
            finally:
                os.close(tree)
            if bundle is not None:
                found[name] = (bundle, os.fstat(bundle.fileno()).st_size)
        return found


def _stream(results: Results) -> Generator[bytes]:
    for name, (bundle, size) in results.items():
        yield header(Entry((name + SUFFIX,), "file", 0o600, size))
        bundle.seek(0)
        left = size
        while left and (piece := bundle.read(min(left, _CHUNK))):
            left -= len(piece)
            yield piece
        yield padding(size)
    yield END


class GitCarrier(ArchiveCarrier):
    """The transport ``git`` on the executor's side; a ``Carrier``.

    Args:
        root, limits: those of ``ArchiveCarrier``.
        sandbox: what git runs in.
    """

    def __init__(self, root: Path, limits: Callable[[], TarLimits], sandbox: GitSandbox | None = None) -> None:
        super().__init__(root, limits)
        self._sandbox = sandbox or GitSandbox()

    def _view(self, place: Path, descriptor: int) -> UnpackedView:
        return ClonedView(place, self._dirs, descriptor, self._threads, self._sandbox)
