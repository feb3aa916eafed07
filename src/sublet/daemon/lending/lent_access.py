"""The access that one delegation gives: its credential, its view, the way to it, and the audit once it is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio

from sublet.daemon.api.delegation_views import LeaseUsageView
from sublet.daemon.lending.change_notes import ChangeNotes
from sublet.daemon.lending.connection_watch import ConnectionWatch
from sublet.daemon.lending.credential import credential
from sublet.daemon.lending.denial_notes import DenialNotes
from sublet.daemon.lending.keeper import DelegationKeeper
from sublet.daemon.lending.lease_meta import lease_json, lease_meta, usage_view
from sublet.daemon.lending.lent_resources import prepared
from sublet.daemon.lending.room_plans import NO_ROOMS, RoomPlans
from sublet.daemon.lending.staged_tree import ReturnedTree, StagedTree, Trees, comes_back
from sublet.daemon.net.addresses import is_loopback
from sublet.daemon.ports.peer_link import PeerAddress, PeerLink
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.resource_log import ResourceChange
from sublet.daemon.tasks.background import in_background
from sublet.daemon.times import rfc3339
from sublet.protocol.bounds import MAX_TTL_SECONDS, AccessMode
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Accept, ActiveLease, DataPath, Endpoint, FollowUp, Mount, Start, StartExtension
from sublet.protocol.times import unix_seconds
from sublet.workspace.export import Export, ExportLimits, LeaseUsage, LentDirectory
from sublet.workspace.locks import DirectoryLocks
from sublet.workspace.quota import QuotaMet
from sublet.workspace.serving.lease_memory import LeaseMemory, recall
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.view.admission import AdmissionLimits
from sublet.workspace.view.change_watch import ChangeWatch

REMEMBER_SECONDS: Final = 1.0
"""How often the counters of a lease are kept for the next process."""


@dataclass(frozen=True, slots=True)
class DelegatorTools:
    """What every delegation works with; the composition root makes it once.

    ``memories`` is where what leases did is kept for the next process, ``rooms`` decides whether both sides have one.
    """

    journal: Journal
    data_plane: DataPlane
    link: PeerLink
    trees: Trees
    locks: DirectoryLocks
    memories: Path
    limits: Callable[[], AdmissionLimits]
    rooms: RoomPlans = NO_ROOMS


@dataclass(frozen=True, slots=True)
class _Ready:
    """What is ready to be served."""

    accept: Accept
    resources: tuple[LentDirectory, ...]
    public: str
    before: LeaseUsage | None = None


class LentAccess:
    """What the peer of one delegation may reach, from START until it is settled."""

    def __init__(self, keeper: DelegationKeeper, peer: PeerAddress, tools: DelegatorTools) -> None:
        self._keeper = keeper
        self._peer = peer
        self._tools = tools
        self._tree = tools.trees.of(keeper.record)
        self._usage = LeaseUsage()
        self._data_path: DataPath = "direct"
        self._memory: LeaseMemory | None = None
        self._ends = 0.0
        self._ready: _Ready | None = None
        self._credential = ""
        self.quota_met = asyncio.Event()
        """Set when a change was first refused for the lease's quota."""
        self.denials = DenialNotes()
        """Changes that were refused for a rule, to be told in the delegation's log."""
        self.connections = ConnectionWatch()
        """Whether the executor is connected to the files."""

    async def baseline(self) -> dict[str, str]:
        """Record what the executor will see, and return the snapshots' ids by the names of the directories.

        Raises:
            SubletError: as ``LentTree.baseline``.
        """
        return await self._tree.baseline()

    async def start_over(self) -> None:
        """Remove what an earlier process has prepared and nobody has used."""
        await self._tree.drop()
        self._tree = self._tools.trees.of(self._keeper.record)

    async def take_up(self) -> None:
        """Find again what an earlier process has prepared.

        Raises:
            SubletError: as ``LentTree.take_up``.
        """
        await self._tree.take_up()

    async def prepare(self, accept: Accept) -> None:
        """Make the view ready to be served to the executor's key, or one made for it, now that it has accepted.

        Args:
            accept: the executor's ACCEPT (AWCP 3.2).

        Raises:
            SubletError: ``AUTH_FAILED`` for a key that is none, ``WORKSPACE_INVALID`` where the directory is not the
                one any more that was asked for.
        """
        public, self._credential = credential(accept.remote_constraints.public_key)
        await self._agree()
        self._ready = _Ready(accept, await self._prepared(), public)

    async def prepare_again(self, accept: Accept) -> None:
        """Make ready what an earlier process served, for the same key, as what it did is remembered.

        Args:
            accept: the executor's ACCEPT, with a key of its own.

        Raises:
            SubletError: as ``prepare``.
        """
        public, self._credential = credential(accept.remote_constraints.public_key)
        resources = await self._prepared()
        before = await self.recall()
        if isinstance(self._tree, StagedTree):
            # A private view may be mounted anew; nobody but us can have put another in its place.
            before.roots.clear()
        await self._tools.journal.resources.acquire(self._keeper.record.id, "lease", {"user": self._keeper.record.id})
        self.connections = ConnectionWatch(missing=True)
        self._ready = _Ready(accept, resources, public, before)

    def serve(self, ends: float) -> None:
        """Let the executor in, until ``ends`` on the loop's clock; nothing that is given here outlives it.

        Raises:
            SubletError: as ``DataPlane.open``.
        """
        assert self._ready is not None
        ready = self._ready
        self._serve(ready.accept, ready.resources, ready.public, ends, ready.before)
        if ready.before is not None and ready.before.quota.met is not None:
            # Perhaps the last process did not get as far as to tell the peer.
            self._quota_met(ready.before.quota.met)

    async def check(self) -> None:
        """Look whether what is served is what was asked for.

        Raises:
            SubletError: ``WORKSPACE_INVALID`` for a directory that was replaced meanwhile.
        """
        await self._tree.check()

    async def recall(self) -> LeaseUsage:
        """Return what the lease did under an earlier process, and let that count until it is served again."""
        self._usage = await in_background(recall, self._memory_file)
        return self._usage

    async def remember(self) -> None:
        """Keep the counters of the lease for the next process, until cancelled."""
        while True:
            await anyio.sleep(REMEMBER_SECONDS)
            usage = self._tools.data_plane.usage(self._keeper.record.id)
            if usage is not None and self._memory is not None:
                self._memory.count(usage)

    def extend(self, seconds: int) -> None:
        """Serve the lease for ``seconds`` more, and tell so in the view."""
        self._ends += seconds
        with suppress(SubletError):
            self._tools.data_plane.extend(self._keeper.record.id, seconds)
            self._tools.data_plane.set_meta(self._keeper.record.id, "lease.json", lease_json(self._keeper.record))

    def start(self, follow_up: FollowUp | None = None, *, more: int = 0) -> Start:
        """Return the START of this moment, for a lease that is served; with ``more`` seconds than it has."""
        record = self._keeper.record
        assert record.expires_at is not None
        expires_at = rfc3339(unix_seconds(record.expires_at) + more) if more else record.expires_at
        host, port = self._tools.data_plane.address
        return Start(
            delegation_id=record.id,
            lease=ActiveLease(expires_at=expires_at, access_mode=record.access_mode),
            mount=Mount(
                transport=record.transport or "sshfs",
                endpoint=Endpoint(host=host, port=port, user=record.id),
                export_locator="/",
                credential=self._credential,
            ),
            sublet=StartExtension(
                host_key=self._tools.data_plane.host_key_line,
                # Rounded down: an executor that ends first can still write out what is pending.
                remaining_seconds=min(MAX_TTL_SECONDS, max(1, int(self._ends - anyio.current_time())) + more),
                data_path=self._data_path,
                generation=record.generation,
                follow_up=follow_up,
                room_id=record.room.room_id if record.room is not None else None,
            ),
        )

    @property
    def _memory_file(self) -> Path:
        return self._tools.memories / self._keeper.record.id

    async def _prepared(self) -> tuple[LentDirectory, ...]:
        """Return what is served, and note what of a repository is not."""
        resources, git_hidden = await in_background(prepared, self._tree.resources, self._keeper.record.request)
        await self._keeper.note(git_hidden=git_hidden)
        return resources

    def _serve(
        self,
        accept: Accept,
        resources: Sequence[LentDirectory],
        public: str,
        ends: float,
        before: LeaseUsage | None = None,
    ) -> None:
        record = self._keeper.record
        self._ends = ends
        self._memory = LeaseMemory(self._memory_file)
        self._tools.data_plane.open(
            Export(
                lease_id=record.id,
                resources=tuple(_narrowed(lent, record.access_mode) for lent in resources),
                public_key=public,
                seconds=max(0.0, ends - anyio.current_time()),
                meta=lease_meta(record),
                limits=ExportLimits(**record.quota.model_dump()),
                on_quota_met=self._quota_met,
                on_connected=self.connections.changed,
                on_denied=self.denials.add,
                transport=record.transport or "sshfs",
                memory=self._memory,
                before=before,
                peer=record.peer,
                must_keep=record.request.keep_all,
            )
        )
        self._data_path = self._first_path(self._tools.data_plane.address[0], accept)

    async def _agree(self) -> None:
        """Make the private views that the transport needs which the executor has chosen, where there are none yet."""
        tree = self._tools.trees.of(self._keeper.record)
        if isinstance(tree, ReturnedTree) and not isinstance(self._tree, ReturnedTree):
            self._tree = tree
            await self._keeper.note(snapshots=await tree.baseline())

    async def dial(self, port: int) -> None:
        """Reach the executor from here and serve the view over that connection (DESIGN 4.6).

        Raises:
            SubletError: ``MOUNT_FAILED``.
        """
        host = urlsplit(self._peer.a2a_url).hostname or ""
        await self._tools.data_plane.dial(host, port, self._keeper.record.id)
        self._data_path = "reverse"

    def changes(self) -> ChangeNotes | None:
        """Return what tells of others' changes, where that was asked for."""
        if not self._keeper.record.request.watch:
            return None
        plane, lease_id = self._tools.data_plane, self._keeper.record.id

        def touched() -> dict[str, set[bytes]]:
            return (plane.usage(lease_id) or self._usage).touched

        def show(name: str, data: bytes) -> None:
            with suppress(SubletError):
                plane.set_meta(lease_id, name, data)

        return ChangeNotes(self._tools.journal, lease_id, ChangeWatch(self._tree.resources, touched), show)

    def show_log(self, tail: bytes) -> None:
        """Put the end of the executor's output where the executor sees it too, while there is a view to put it in."""
        with suppress(SubletError):
            self._tools.data_plane.set_meta(self._keeper.record.id, "log.txt", tail)

    def check_quota(self) -> None:
        """Refuse to take work for done whose writes were refused.

        Raises:
            SubletError: ``TASK_FAILED`` naming the bound of the lease that was met, or the full disk (DESIGN 4.6).
        """
        usage = self._tools.data_plane.usage(self._keeper.record.id) or self._usage
        if usage.quota.met is not None:
            raise usage.quota.met.error()

    @property
    def returned(self) -> bool:
        """Whether all changes of a transport that brings them at the end have arrived."""
        return (self._tools.data_plane.usage(self._keeper.record.id) or self._usage).returned

    def check_returned(self) -> None:
        """Refuse to take work for done whose changes did not come back.

        Raises:
            SubletError: ``TASK_FAILED``.
        """
        record = self._keeper.record
        if record.access_mode == "rw" and comes_back(record) and not self.returned:
            raise SubletError(
                ErrorCode.TASK_FAILED,
                "the executor says that it is done, but its changes did not come back",
                "Delegate again; the log of the executor's daemon says why.",
            )

    def usage(self) -> LeaseUsageView:
        """Return what went over the data plane so far."""
        live = self._tools.data_plane.usage(self._keeper.record.id)
        return usage_view(live or self._usage, self._data_path)

    def revoke(self, reason: str) -> None:
        """Cut access at once: when this returns, the credential is dead and every open handle with it."""
        self._usage = self._tools.data_plane.revoke(self._keeper.record.id, reason) or self._usage
        if self._memory is not None:
            self._memory.count(self._usage)
            self._memory.close()

    async def settle(self) -> None:
        """Make the audit where there is none yet, and journal it, and that access is cut."""
        record = self._keeper.record
        news: dict[str, object] = {"usage": self.usage()}
        if record.snapshots and record.expires_at is not None:
            news |= await self._tree.report(record, self._usage)
        else:
            await self._tree.drop()
        await self._keeper.note(ResourceChange(gives_back=("lease",)), **news)
        self._usage.forget_paths()

    async def forget(self) -> None:
        """Remove what was kept for a next process; for a delegation that is settled."""
        await in_background(self._memory_file.unlink, True)

    def _quota_met(self, met: QuotaMet) -> None:
        """Note that a change was refused, and tell so in the view, where the agent can look why."""
        if self.quota_met.is_set():
            return
        self.quota_met.set()
        with suppress(SubletError):
            self._tools.data_plane.set_meta(self._keeper.record.id, "lease.json", lease_json(self._keeper.record, met))

    def _first_path(self, sftp_host: str, accept: Accept) -> DataPath:
        """Tell which way to try first: a listener on loopback can't be reached from another machine."""
        peer_host = urlsplit(self._peer.a2a_url).hostname or ""
        out_of_reach = is_loopback(sftp_host) and not is_loopback(peer_host)
        return "reverse" if out_of_reach and accept.sublet.reverse is not None else "direct"


def _narrowed(lent: LentDirectory, access_mode: AccessMode) -> LentDirectory:
    """Return ``lent`` with no more access than the whole lease has."""
    return replace(lent, access_mode="ro") if access_mode == "ro" else lent
