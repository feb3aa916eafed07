"""The executor's side with real parts, but for the agent, which the test plays; a real data plane lends to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import asyncssh

from sublet.daemon.ports.given_to_a2a import KnownPeer
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import AssignmentRecord
from sublet.daemon.storage.store import Store
from sublet.daemon.times import rfc3339
from sublet.daemon.working.executor import Executor
from sublet.daemon.working.executor_tools import ExecutorTools
from sublet.policy.config import PolicyConfig
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.protocol.bounds import TransportName
from sublet.protocol.messages import Accept, Done, Invite, Progress, Start
from sublet.supervisor.confinement import Confinement
from sublet.supervisor.job import Job, Outcome, Report
from sublet.supervisor.slots import Slots
from sublet.workspace.archive.carrier import ArchiveCarrier
from sublet.workspace.archive.tar_format import TarLimits
from sublet.workspace.carrier import Carrier
from sublet.workspace.export import Export, ExportLimits, LentDirectory
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.mount.table import mounted_below
from sublet.workspace.requirements import require_transport
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.ssh.reverse import ReverseAcceptor
from sublet.workspace.view.rules import DEFAULT_CARRIED, DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.decisions import gatekeeper
from support.gates import ListGate
from support.jobs import command

ALICE = KnownPeer("alice", b"\1" * 32, "SHA256:" + "A" * 43)
MALLORY = KnownPeer("mallory", b"\2" * 32, "SHA256:" + "M" * 43)
HERE = "127.0.0.1"
HOST_KEY = asyncssh.generate_private_key("ssh-ed25519")

Work = Callable[[Job, Report], Awaitable[Outcome]]


async def finish(job: Job, report: Report) -> Outcome:
    """Do nothing, successfully."""
    return Outcome("done", "nothing to do", 0)


async def work_for_ever(job: Job, report: Report) -> Outcome:
    """Work until cancelled."""
    await asyncio.Event().wait()
    raise AssertionError


class ScriptedAgent:
    """A provider that does what the test says. ``began`` is set when a job has come, ``ended`` when it is over."""

    def __init__(self) -> None:
        self.work: Work = finish
        self.jobs: list[Job] = []
        self.began = asyncio.Event()
        self.ended = asyncio.Event()

    async def run(self, job: Job, report: Report) -> Outcome:
        self.jobs.append(job)
        self.began.set()
        try:
            return await self.work(job, report)
        finally:
            self.ended.set()


def transport_of(accept: Accept) -> TransportName:
    """Return the transport that ACCEPT chooses."""
    return "archive" if accept.sublet.transport == "archive" else "sshfs"


@dataclass
class Worker:
    """One executor, the store below it, and a lender's data plane beside it."""

    root: Path
    journal: Journal
    lender: DataPlane
    reverse_port: int | None = None
    config: PolicyConfig = field(default_factory=PolicyConfig)
    agent: ScriptedAgent = field(default_factory=ScriptedAgent)
    reverse: ReverseAcceptor = field(default_factory=ReverseAcceptor)

    def __post_init__(self) -> None:
        self.mounts = Mounts(self.root / "mounts")
        self.archives = ArchiveCarrier(self.root / "work", lambda: TarLimits(10_000, 1 << 30, 1 << 30))
        self.carriers: dict[str, Carrier] = {"sshfs": self.mounts, "archive": self.archives}
        self.slots = Slots(lambda: 2)
        self.executor = Executor(
            journal=self.journal,
            gate=gatekeeper(self.journal, Policy(Protected(self.root / "home"), self.config)),
            slots=self.slots,
            tools=ExecutorTools(
                self.carriers, self.reverse, lambda _: self.agent, self.root / "scratch", lambda *_: ListGate()
            ),
            agents=lambda: [command()],
            max_ttl_seconds=lambda: 600,
            reverse_port=lambda _: self.reverse_port,
            confinement=lambda agent: Confinement(True, True, True, frozenset()),
            require=require_transport,
            node_id="node-bbbbbbbbbbbbbbbb",
            max_depth=4,
        )

    @property
    def project(self) -> Path:
        return self.root / "project"

    async def accepted(self, name: str = "dlg_1", **lease: object) -> Accept:
        """Return the ACCEPT of an INVITE."""
        return await self.executor.invite(invite(name, **lease), ALICE, source_host=HERE)

    def start(
        self,
        accept: Accept,
        *,
        seconds: float = 60,
        mode: str = "rw",
        limits: ExportLimits | None = None,
        **sublet: object,
    ) -> Start:
        """Lend the project as ACCEPT asks, and return the START."""
        key = accept.remote_constraints.public_key
        assert key is not None
        rules = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], carried=DEFAULT_CARRIED)
        lent = LentDirectory("workspace", self.project, "ro" if mode == "ro" else "rw", rules)
        transport = transport_of(accept)
        bounds = limits or ExportLimits()
        self.lender.open(Export(accept.delegation_id, (lent,), key, seconds, limits=bounds, transport=transport))
        return self.start_message(accept, seconds, mode=mode, **sublet)

    def start_message(self, accept: Accept, seconds: float = 60, *, mode: str = "rw", **sublet: object) -> Start:
        """Return a START for what is lent already, or is not lent at all."""
        host, port = self.lender.address
        return Start.model_validate(
            {
                "delegation_id": accept.delegation_id,
                "lease": {"expires_at": rfc3339(4102444800.0), "access_mode": mode},
                "mount": {
                    "transport": accept.sublet.transport,
                    "endpoint": {"host": host, "port": port, "user": accept.delegation_id},
                    "export_locator": "/",
                    "credential": "publickey:none",
                },
                "sublet": {"host_key": self.lender.host_key_line, "remaining_seconds": int(seconds), **sublet},
            }
        )

    async def updates(self, start: Start) -> list[Progress | Done]:
        """Do the work of START and return all that is said."""
        return [update async for update in self.executor.run(start, ALICE, source_host=HERE)]

    async def record(self, name: str = "dlg_1") -> AssignmentRecord:
        """Return what is on the disk."""
        record = await self.journal.load_assignment(name)
        assert record is not None
        return record

    async def check_nothing_held(self) -> None:
        """Fail where anything of any assignment is left."""
        assert self.executor.active == 0
        assert not self.executor._assignments.under_way
        assert not self.executor._decisions
        assert self.slots.in_use == 0
        assert await self.journal.resources.open_resources() == []
        assert mounted_below(self.mounts.root) == []
        assert not self.mounts.root.exists() or list(self.mounts.root.iterdir()) == []
        scratch = self.root / "scratch"
        assert not scratch.exists() or list(scratch.iterdir()) == []


def invite(name: str = "dlg_1", /, **lease: object) -> Invite:
    """Return an INVITE; what is no part of the lease is put where it belongs."""
    required = lease.pop("require_enforced", [])
    agent, transport = lease.pop("agent", None), lease.pop("transport", "sshfs")
    return Invite.model_validate(
        {
            "delegation_id": name,
            "task": {"description": "a test", "prompt": lease.pop("prompt", "do it")},
            "lease": {"ttl_seconds": 60, "access_mode": "rw", **lease},
            "workspace": {"export_name": f"awcp/{name}"},
            "requirements": {"transport": transport},
            "sublet": {"agent": agent, "require_enforced": required},
        }
    )


@asynccontextmanager
async def worker(
    root: Path, *, journal: type[Journal] = Journal, config: PolicyConfig | None = None
) -> AsyncIterator[Worker]:
    """Run an executor's side while the block lasts, and stop it as the daemon does."""
    (root / "project").mkdir(exist_ok=True)
    (root / "project" / "hello.txt").write_text("hi\n")
    store = await Store.open(root / "sublet.db")
    lender = DataPlane(HOST_KEY)
    await lender.start("127.0.0.1", 0)
    side = Worker(root, journal(store), lender, config=config or PolicyConfig())
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(lender.serve)
            async with anyio.create_task_group() as services:
                services.start_soon(side.executor.serve)
                await anyio.wait_all_tasks_blocked()
                yield side
                services.cancel_scope.cancel()
            group.cancel_scope.cancel()
    finally:
        lender.close()
        await store.close()
        side.mounts.reap()
