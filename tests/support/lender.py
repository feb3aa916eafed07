"""The delegator's side with real parts, but for the link to the peer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import asyncssh

from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.lending.delegator import Delegator
from sublet.daemon.lending.lent_access import DelegatorTools
from sublet.daemon.lending.lent_resources import asked_for
from sublet.daemon.lending.staged_tree import Trees
from sublet.daemon.ports.peer_link import PeerAddress
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import DelegationRecord
from sublet.daemon.storage.store import Store
from sublet.policy.decision import Subject
from sublet.policy.limits import AdmissionLimits
from sublet.protocol.chain import Chain
from sublet.protocol.ids import fingerprint
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.locks import DirectoryLocks
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.staging.private_views import Staging
from support.scripted_link import BOB, ScriptedLink

ME = Subject("human")
HOST_KEY = asyncssh.generate_private_key("ssh-ed25519")
NOBODY = Chain()
WAIT_SECONDS = 20.0


def bob_alone(record: DelegationRecord) -> PeerAddress | None:
    """Return how to call Bob, where it is his delegation: nobody else is paired."""
    return BOB if record.peer_fingerprint == fingerprint(BOB.public_key) else None


@dataclass
class Lender:
    """One delegator. ``project`` is a directory to lend."""

    root: Path
    journal: Journal
    data_plane: DataPlane
    auditor: Auditor
    link: ScriptedLink
    locks: DirectoryLocks = field(default_factory=DirectoryLocks)
    limits: AdmissionLimits = field(default_factory=AdmissionLimits)

    def __post_init__(self) -> None:
        self.trees = trees(self.root / "state", self.journal, self.auditor)
        self.delegator = Delegator(
            DelegatorTools(
                self.journal,
                self.data_plane,
                self.link,
                self.trees,
                self.locks,
                self.root / "leases",
                lambda: self.limits,
            ),
            bob_alone,
        )

    @property
    def project(self) -> Path:
        return self.root / "project"

    async def create(
        self,
        prompt: str = "do it",
        *,
        ttl: int = 60,
        peer: PeerAddress = BOB,
        caller: Subject = ME,
        chain: Chain = NOBODY,
        **more: object,
    ) -> str:
        """Delegate the project and return the id."""
        request = self.request(prompt, ttl=ttl, **more)
        view = await self.delegator.create(request, caller, asked_for(request), peer, None, ttl, chain)
        return view.delegation_id

    def request(self, prompt: str = "do it", *, ttl: int = 60, **more: object) -> CreateDelegation:
        """Return a request to lend the project."""
        body = {"workspace_dir": str(self.project), "peer": "bob", "prompt": prompt, "ttl_seconds": ttl, **more}
        return CreateDelegation.model_validate(body)

    async def running(self, **more: object) -> str:
        """Return the id of a delegation whose work runs."""
        found = await self.create(**more)  # type: ignore[arg-type]  # keywords are checked when they are used
        self.link.progress(found)
        await self.until(found, "running")
        return found

    async def until(self, delegation_id: str, *states: str) -> DelegationView:
        """Wait until the delegation is in one of ``states``."""
        cursor = 0
        with anyio.fail_after(WAIT_SECONDS):
            while True:
                view = await self.delegator.view(delegation_id)
                if str(view.state) in states:
                    return view
                page = await self.journal.events.wait_for_events(cursor, delegation_id, timeout=1)
                cursor = page.cursor

    async def settled(self, delegation_id: str) -> DelegationView:
        """Wait for the end and check that nothing of the delegation is left in force."""
        view = await self.delegator.wait(delegation_id, WAIT_SECONDS)
        record = await self.record(delegation_id)
        assert record.terminal
        assert record.settled
        assert record.condition is None
        # A peer that has not heard of the end yet is still to be told.
        untold = {"remote_task"} if self.link.cancel_hangs or self.link.cancel_fails else set()
        assert {held.kind for held in await self.journal.resources.open_resources(delegation_id)} <= untold
        assert self.data_plane.usage(delegation_id) is None
        assert [holder for holder in self.locks.holders() if holder.owner == delegation_id] == []
        ends = [state for state in await self.states(delegation_id) if state not in WAYS]
        assert ends == [str(record.state)] == [str(view.state)]
        return view

    async def record(self, delegation_id: str) -> DelegationRecord:
        """Return what is on the disk."""
        record = await self.journal.load_delegation(delegation_id)
        assert record is not None
        return record

    async def states(self, delegation_id: str) -> list[str]:
        """Return the states that the journal tells of, in order."""
        page = await self.journal.events.events_after(0, delegation_id, limit=500)
        return [str(event.data["state"]) for event in page.events if event.kind == "delegation_state"]


def trees(state_dir: Path, journal: Journal, auditor: Auditor) -> Trees:
    """Return what makes the trees of delegations, with its state below ``state_dir``."""
    staging = Staging(state_dir)
    return Trees(journal, auditor, staging, ChangeSets(state_dir, auditor, staging))


WAYS = ("created", "invited", "accepted", "started", "running")
"""States that are no ends."""


@asynccontextmanager
async def lender(root: Path, auditor: Auditor | None = None, journal: type[Journal] = Journal) -> AsyncIterator[Lender]:
    """Run a delegator's side while the block lasts, and stop it as the daemon does."""
    (root / "project").mkdir(exist_ok=True)
    (root / "project" / "hello.txt").write_text("hi\n")
    store = await Store.open(root / "sublet.db")
    plane = DataPlane(HOST_KEY)
    await plane.start("127.0.0.1", 0)
    side = Lender(root, journal(store), plane, auditor or Auditor(root / "state"), ScriptedLink())
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(plane.serve)
            async with anyio.create_task_group() as services:
                services.start_soon(side.delegator.serve)
                await anyio.wait_all_tasks_blocked()
                yield side
                services.cancel_scope.cancel()
            group.cancel_scope.cancel()
    finally:
        plane.close()
        await store.close()
