"""The transport ``git`` on the executor's side: a repository to work in, whose result comes back as a bundle.

Git runs in that repository once, when nobody has worked in it yet. What becomes of the work is then read by our own
walk into a repository that the agent never sees (DESIGN 4.6).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Generator, Mapping
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from typing import Final

from sublet.protocol.errors import SubletError
from sublet.workspace.archive.carrier import MAX_SECONDS, MAX_WORK_ENTRIES, ArchiveCarrier, UnpackedView
from sublet.workspace.archive.client import LinkLostError
from sublet.workspace.archive.tar_format import END, Entry, Parts, TarLimits, header, padding
from sublet.workspace.archive.tree_manifest import Held
from sublet.workspace.archive.tree_pack import AllVisible
from sublet.workspace.archive.wire import Planned
from sublet.workspace.bundles.exchange import GitExchange
from sublet.workspace.bundles.runs import GitRuns
from sublet.workspace.bundles.server import SUFFIX
from sublet.workspace.view.walk import Budget, WalkOverrunError
from sublet.workspace.work_dirs import WorkDirs

_CHUNK: Final = 256 * 1024

Bundles = dict[bytes, tuple[Path, int]]
"""By the name of the directory: where its bundle is, and its size."""

_log = logging.getLogger(__name__)


class _WithoutRepository(AllVisible):
    """The rules of a work tree: its own repository is no part of it."""

    def hidden(self, parts: object) -> bool:
        """Tell whether the name is the repository, or in it."""
        return isinstance(parts, tuple) and parts[:1] == (b".git",)


class ClonedView(UnpackedView):
    """One view whose directories are repositories. Arguments are those of ``UnpackedView``."""

    def __init__(self, place: Path, dirs: WorkDirs, descriptor: int, threads: Executor) -> None:
        super().__init__(place, dirs, descriptor, threads)
        self._runs = GitRuns()
        self._results: dict[bytes, tuple[GitExchange, str]] = {}
        self._bundled: Bundles | None = None

    def _arrange(self, limits: TarLimits) -> None:
        self._private.mkdir(mode=0o700)
        for file in sorted(os.listdir(self.path)):
            name = os.fsencode(file)
            if not name.endswith(SUFFIX):
                continue
            name = name.removesuffix(SUFFIX)
            repository = GitExchange(self._private / os.fsdecode(name), self._runs)
            repository.create()
            base = repository.take(self.path / file, max_bytes=limits.max_bytes, max_names=limits.max_entries)
            repository.check_out(self.path / file, self.path / os.fsdecode(name))
            (self.path / file).unlink()
            self._results[name] = (repository, base)

    def _stop(self) -> None:
        super()._stop()
        self._runs.halt()

    @property
    def _private(self) -> Path:
        return self.path.with_name(f"{self.path.name}.git")

    def _survey(self, known: Mapping[Parts, Held], digests: Mapping[Parts, bytes]) -> dict[Parts, Held]:
        return {}

    async def discard(self) -> None:
        """``UnpackedView.discard``."""
        self._stop()
        await super().discard()
        if not await asyncio.to_thread(self._dirs.release, self._private):
            _log.error("a private directory could not be removed: %s", self._private)

    async def _bring_back(self) -> bool:
        assert self._channel is not None
        try:
            if self._bundled is None:
                self._bundled = await self._step(self._bundles)
            bundles = self._bundled
            await self._channel.plan([Planned((name + SUFFIX,), "file", size) for name, (_, size) in bundles.items()])
            with closing(_stream(bundles)) as pieces:
                while (piece := await self._step(next, pieces, None)) is not None:
                    await self._channel.upload(piece)
            self._tell(await self._channel.finish())
        except LinkLostError:
            raise
        except SubletError as error:
            _log.warning("changes could not be brought back: %s", error.message)
            return False
        except (OSError, WalkOverrunError) as error:
            _log.warning("changes could not be read: %s", error)
            return False
        return True

    def _bundles(self) -> Bundles:
        """Return the bundle of every directory in which anything has changed."""
        found: Bundles = {}
        for name, (repository, base) in self._results.items():
            tree = self._open_branch(name)
            try:
                budget = Budget(MAX_WORK_ENTRIES, MAX_SECONDS)
                result = repository.snapshot(tree, _WithoutRepository(), budget, parent=base)
            finally:
                os.close(tree)
            if repository.changes(base, result):
                bundle = self._private / f"{len(found)}.bundle"
                repository.bundle(bundle, base)
                found[name] = (bundle, bundle.stat().st_size)
        return found


def _stream(bundles: Bundles) -> Generator[bytes]:
    for name, (bundle, size) in bundles.items():
        yield header(Entry((name + SUFFIX,), "file", 0o600, size))
        with open(bundle, "rb") as file:
            while piece := file.read(_CHUNK):
                yield piece
        yield padding(size)
    yield END


class GitCarrier(ArchiveCarrier):
    """The transport ``git`` on the executor's side; a ``Carrier``. Arguments are those of ``ArchiveCarrier``."""

    view = ClonedView
