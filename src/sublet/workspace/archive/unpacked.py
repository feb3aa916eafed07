"""A view that was unpacked in a private directory, where an agent works until changes are sent back (DESIGN 4.6)."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import aclosing, closing
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple

import anyio
import asyncssh
import structlog

from sublet.protocol.errors import SubletError
from sublet.protocol.names import MalformedName, parse_name
from sublet.protocol.text import clean_line
from sublet.workspace.archive.client import ArchiveChannel, LinkLostError, failed
from sublet.workspace.archive.tar_format import Entry, MalformedTar, Parts, TarLimits, TarSink
from sublet.workspace.archive.tar_reader import TarReader
from sublet.workspace.archive.tree_manifest import Interrupted, TreeEntry, difference, survey
from sublet.workspace.archive.tree_pack import AllVisible, TreeChanged, TreePacker
from sublet.workspace.archive.tree_unpack import TreeWriter
from sublet.workspace.archive.wire import Planned, Report
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.quota import Quota
from sublet.workspace.view.export_view import META
from sublet.workspace.view.walk import Budget, WalkOverrunError
from sublet.workspace.work_dirs import WorkDirs

MAX_SECONDS: Final = 3_600.0
"""Of one walk over what was unpacked."""


AGAIN_SECONDS: Final = 0.5
"""How long to wait before changes are brought back again that a broken link has stopped."""


MAX_WORK_ENTRIES: Final = 1_000_000
"""Names that may lie there when the work is done."""


T = TypeVar("T")


Arguments = TypeVarTuple("Arguments")


log = structlog.get_logger(__name__)


class UnpackedView:
    """One unpacked view. Made by ``ArchiveCarrier.attach``, ended by ``detach``."""

    def __init__(self, place: Path, dirs: WorkDirs, descriptor: int, threads: Executor) -> None:
        self.path = place
        self.cut = asyncio.Event()
        """Set while there is no link. The work goes on in the copy; only in the end a link is needed again."""
        self.lost = asyncio.Event()
        """Never set: a copy does not get lost."""
        self._dirs = dirs
        self._root = descriptor
        self._threads = threads
        self._channel: ArchiveChannel | None = None
        self._branches: list[bytes] = []
        self._held: dict[Parts, TreeEntry] = {}
        self._lock = asyncio.Lock()
        self._halt = threading.Event()
        self._ending = False
        self._bringing = False
        self._brought: bool | None = None
        self._flushed: bool | None = None
        self._left = ""

    @property
    def is_copy(self) -> bool:
        """``Carried.is_copy``."""
        return True

    @property
    def is_there(self) -> bool:
        """``Carried.is_there``."""
        return True

    @property
    def left(self) -> str:
        """``Carried.left``."""
        return self._left

    @property
    def why_cut(self) -> str:
        """``Carried.why_cut``."""
        return "the connection was lost"

    @property
    def why_lost(self) -> str:
        """``Carried.why_lost``."""
        return ""

    @property
    def interrupted(self) -> int:
        """``Carried.interrupted``: work goes on in the copy whatever the link does."""
        return 0

    @property
    def over_quota(self) -> bool:
        """``Carried.over_quota``: then nothing was brought back, which ``detach`` has told."""
        return False

    async def attend(self) -> None:
        """``Carried.attend``: a copy needs nothing."""

    async def rejoin(self, connection: asyncssh.SSHClientConnection) -> None:
        """``Carried.rejoin``: the changes will go over ``connection``."""
        self._channel = await ArchiveChannel.open(connection, self._ended)
        self.cut.clear()

    async def bring_back(self) -> bool:
        """``Carried.bring_back``."""
        if self._brought is not None:
            return True
        if self.cut.is_set():
            return False
        # Its channel ends with the transfer, which is no loss of the link.
        self._bringing = True
        try:
            self._brought = await self._bring_back()
        except LinkLostError as error:
            log.warning("changes are to be brought back again", reason=error.message)
            # A delegator that has not noticed yet that the last link is gone takes no other transfer for a while.
            await asyncio.sleep(AGAIN_SECONDS)
            self._bringing = False
            self.cut.set()
            return False
        except BaseException:
            self._brought = False  # what was begun on this channel does not come to its end
            raise
        return True

    async def detach(self, *, flush: bool = True) -> bool:
        """``Carried.detach``."""
        async with self._lock:
            if self._flushed is None:
                try:
                    if self._brought is None and flush:
                        await self.bring_back()
                    self._flushed = flush and self._brought is True
                finally:
                    with anyio.CancelScope(shield=True):
                        await self.discard()
            return self._flushed

    async def fetch(self, connection: asyncssh.SSHClientConnection, limits: TarLimits) -> None:
        """Unpack the view. For ``ArchiveCarrier.attach`` only.

        Raises:
            SubletError: ``MOUNT_FAILED``.
        """
        fs = WritableFs(
            os.dup(self._root), AllVisible(), Quota(None, None), lambda _: None, any_link=True, private=True
        )
        writer = TreeWriter(lambda parts: (fs, parts))
        reader = TarReader(_Admitted(writer, self._admit), limits)
        channel = await ArchiveChannel.open(connection, lambda: None)
        try:
            async with aclosing(channel.download()) as pieces:
                async for piece in pieces:
                    await self._step(reader.feed, piece)
            await self._step(reader.finish)
            await self._step(writer.finish)
            await self._step(self._arrange, limits)
        except MalformedTar as error:
            raise failed(f"what the lender sent was not unpacked: {error}") from None
        except OSError as error:
            raise failed(f"it could not be unpacked here: {error.strerror}") from None
        finally:
            channel.close()
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(writer.close)
                fs.close()
        # It stays open and idle while the work lasts, so that the end of the link is noticed at once.
        self._channel = await ArchiveChannel.open(connection, self._ended)
        try:
            self._branches = [name for name in map(os.fsencode, os.listdir(self._root)) if name != META]
            self._held = await self._step(self._survey, {}, writer.digests)
        except (OSError, WalkOverrunError) as error:
            raise failed(f"what was unpacked can't be read: {error}") from None

    def _admit(self, entry: Entry) -> None:
        """Refuse an entry that can't be a part of this kind of view: what stands in it itself is a directory.

        Raises:
            MalformedTar: as it says.
        """
        try:
            parse_name(entry.parts[0])
        except MalformedName as error:
            raise MalformedTar(str(error)) from None
        if len(entry.parts) == 1 and entry.kind != "directory":
            raise MalformedTar("something in the view itself is no directory")

    def _arrange(self, limits: TarLimits) -> None:
        """Make of what was unpacked what is worked in; here they are the same."""

    async def discard(self) -> None:
        """Remove everything. Safe to call again."""
        self._ending = True
        if self._channel is not None:
            self._channel.close()
        if self._root >= 0:
            os.close(self._root)
            self._root = -1
        if not await asyncio.to_thread(self._dirs.release, self.path):
            self._left = f"{self.path} could not be removed"
            log.error("a private directory could not be removed", path=str(self.path))

    async def _bring_back(self) -> bool:
        """Send what differs, and return whether it has all arrived.

        Raises:
            LinkLostError: it may be tried again.
        """
        assert self._channel is not None
        try:
            await self._send_back(self._channel)
            self._tell(await self._channel.finish())
        except LinkLostError:
            raise
        except SubletError as error:
            log.warning("changes could not be brought back", reason=error.message)
            return False
        except (OSError, WalkOverrunError, TreeChanged, Interrupted) as error:
            log.warning("changes could not be read", reason=str(error))
            return False
        return True

    async def _send_back(self, channel: ArchiveChannel) -> None:
        """Announce what differs, and send the contents that the delegator does not have."""
        plan = difference(self._held, await self._step(self._survey, self._held, {}))
        await channel.plan(plan)
        await self._send(channel, plan)

    async def _send(self, channel: ArchiveChannel, plan: list[Planned]) -> None:
        wanted = {change.parts for change in plan if change.kind != "deleted"}
        packer = TreePacker(Budget(MAX_WORK_ENTRIES, MAX_SECONDS), wanted.__contains__)
        for name in self._branches:
            branch = self._open_branch(name)
            try:
                with closing(packer.tree(name, branch, AllVisible())) as pieces:
                    while (piece := await self._step(next, pieces, None)) is not None:
                        await channel.upload(piece)
            finally:
                os.close(branch)
        await channel.upload(packer.end())

    def _survey(self, known: dict[Parts, TreeEntry], digests: dict[Parts, bytes]) -> dict[Parts, TreeEntry]:
        found: dict[Parts, TreeEntry] = {}
        budget = Budget(MAX_WORK_ENTRIES, MAX_SECONDS)
        for name in self._branches:
            branch = self._open_branch(name)
            try:
                found |= survey(name, branch, budget, known, digests, self._halt.is_set)
            finally:
                os.close(branch)
        return found

    def _open_branch(self, name: bytes) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=self._root)

    def _tell(self, report: Report) -> None:
        for one in report.refused:
            log.warning("the lender refused a change", name=clean_line(one.name), reason=clean_line(one.reason))

    async def _step(self, call: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        """Do ``call`` in a thread, which is over when this returns, also where it is cancelled."""
        work = asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._stop()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([work])
            if not work.cancelled():
                work.exception()  # of the interruption, and nobody asks for it
            raise

    def _stop(self) -> None:
        """Have what a thread does come to an end soon."""
        self._halt.set()

    def _ended(self) -> None:
        if not (self._ending or self._bringing):
            self.cut.set()


class _Admitted:
    """Hands on the entries that ``admit`` lets through; a ``TarSink``."""

    def __init__(self, sink: TarSink, admit: Callable[[Entry], None]) -> None:
        self._sink = sink
        self._admit = admit

    def begin(self, entry: Entry) -> None:
        """``TarSink.begin``."""
        self._admit(entry)
        self._sink.begin(entry)

    def data(self, piece: memoryview) -> None:
        """``TarSink.data``."""
        self._sink.data(piece)

    def end(self) -> None:
        """``TarSink.end``."""
        self._sink.end()
