"""What waits: entries for a reader of the audit log, messages for a link, acknowledgements and invitations of peers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, cast
from unittest.mock import patch

import anyio
from nacl.signing import SigningKey

from attacks.kit.within import within
from attacks.probe import KeptProbe, Probe
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.audit_log.log import AuditLog
from sublet.daemon.audit_log.memory import LogMemory
from sublet.daemon.lending.change_notes import ChangeNotes
from sublet.daemon.lending.declared import MAX_DECLARED, DeclaredSandboxes
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.daemon.working import onward
from sublet.daemon.working.onward import OnwardTools
from sublet.messaging.delivery.heard import MAX_ACKNOWLEDGEMENT_BYTES
from sublet.messaging.ports.network import Sample
from sublet.messaging.ports.outbox import Outgoing
from sublet.messaging.running.owner import STOP_SECONDS
from sublet.messaging.running.sender import Reply, Sender
from sublet.messaging.schema.datatypes import QOS_LOW
from sublet.messaging.syncing import replays
from sublet.messaging.syncing.doorkeeper import Doorkeeper, ask
from sublet.policy.decision import Subject
from sublet.protocol.ezagent.bundle import RecordKind, encode_bundle
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.keys import doc_id
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.tool_gate import ToolCall
from sublet.supervisor.tools import DELEGATE
from sublet.workspace.view.change_watch import Changed, ChangeWatch
from sublet.workspace.view.walk import WalkOverrunError
from support.fake_daemon_api import FakeDaemonApi
from support.full_records import full_delegation
from support.jobs import job
from support.members import SECONDS, member, room_of
from support.memory_network import MemoryHub, MemoryNetwork
from support.rooms import peers, shared_room

MEBIBYTE: Final = 1 << 20
LONG: Final = 60_000


@asynccontextmanager
async def _audited(base: Path) -> AsyncIterator[object]:
    """Let a peer ask for things with long names without end, and somebody look through what was denied."""
    store = await Store.open(base / "it.db")
    log = await AuditLog.open(base / "log", LogMemory(store), SigningKey(b"k" * 32))
    for number in range(500):
        denied: dict[str, Any] = {"decision": "deny", "resource": f"{number}".ljust(LONG, "n")}
        await log.add_durably("decision", denied)
    assert await log.entries(log.head.seq - 5, limit=100)
    assert (await log.denials(None, limit=20))[0]
    yield log
    await log.close()
    await store.close()


class _ManyChanges:
    """Finds far more changes than are told, then more than it looks at."""

    pause = 0.0

    def __init__(self) -> None:
        self.looks = 0

    def look(self) -> list[Changed]:
        """Return changes of files with long names."""
        self.looks += 1
        if self.looks > 5:
            raise WalkOverrunError("n" * 3_000)
        return [Changed(f"{number}/{self.looks}".ljust(4_000, "n"), "changed") for number in range(1_000)]


class _NoJournal:
    @property
    def events(self) -> _NoJournal:
        return self

    async def append_event(self, *_: object) -> None:
        """Keep nothing."""


@asynccontextmanager
async def _changed(_: Path) -> AsyncIterator[object]:
    """Let somebody change files with long names without end while a lease lasts."""
    shown: deque[bytes] = deque(maxlen=1)
    notes = ChangeNotes(
        cast("Journal", _NoJournal()),
        "dlg_0",
        cast("ChangeWatch", _ManyChanges()),
        lambda _, content: shown.append(content),
    )
    await notes.serve()
    assert b"not watched any more" in shown[0]
    yield notes, shown


class _Api(FakeDaemonApi):
    """Delegates, and keeps nothing of it."""

    view: DelegationView | None = None
    made = 0

    async def create_delegation(self, request: CreateDelegation, caller: Subject) -> DelegationView:
        """Return another delegation each time."""
        if self.view is None:
            self.view = await super().create_delegation(request, caller)
        self.made += 1
        return self.view.model_copy(update={"delegation_id": f"dlg_{self.made:032x}"})


@asynccontextmanager
async def _delegated_on(base: Path) -> AsyncIterator[object]:
    """Let the agents of job after job delegate further."""
    config = AgentConfig.model_validate({"id": "coder", "provider": {"type": "acp", "argv": ["agent"]}})
    tools = OnwardTools(lambda: [config], lambda _agent, _tool: True, _Api().table)
    given, work = {"workspace_dir": "/w", "peer": "bob", "prompt": "Go."}, job(base, "Go.")
    with patch.object(onward, "MAX_JOBS", 20):
        for number in range(500):
            object.__setattr__(work, "delegation_id", f"dlg_{number:032x}")
            for call in range(3):
                await tools.call(ToolCall(DELEGATE, {**given}, f"c{call}"), work, "coder")
    yield tools


class _Query:
    """A question or an invitation of a peer."""

    def __init__(self, key: str, payload: bytes) -> None:
        self.key = key
        self.payload = payload
        self.peer = ""

    def reply(self, payload: bytes) -> None:
        """Take an answer."""

    def drop(self) -> None:
        """Take none."""


@contextmanager
def _questions() -> Iterator[object]:
    """Let a member ask without end."""
    alice, eve = peers("alice", "eve")
    try:
        room = shared_room(alice, eve)
        name = doc_id("config", room_id=room)
        keeper = Doorkeeper()
        with patch.object(replays, "MAX_NONCES_OF_PEER", 20):
            for _ in range(1_000):
                asked = ask(eve.engine, name, b"\0")
                assert asked is not None
                with contextlib.suppress(Refused):  # of the same moment as what was forgotten
                    keeper.admit(alice.engine, _Query(name, asked.payload))
        yield keeper
    finally:
        alice.store.close()
        eve.store.close()


@asynccontextmanager
async def _acknowledged(base: Path) -> AsyncIterator[object]:
    """Let a peer publish more acknowledgements at once than are read."""
    async with member("alice", 1, MemoryHub(), base) as alice:
        name = doc_id("delivery", room_id=await room_of(alice))
        await anyio.sleep(0)
        for number in range(200):
            alice.service.delivery.heard(Sample(name, bytes([number]) * MAX_ACKNOWLEDGEMENT_BYTES, b""))
        yield alice.service
        heard = alice.service.delivery._acknowledging._heard
        with anyio.fail_after(SECONDS):
            while heard:
                await anyio.sleep(0.01)


@asynccontextmanager
async def _invited(base: Path) -> AsyncIterator[object]:
    """Let a peer invite into rooms without end, while one invitation is read."""
    async with member("alice", 1, MemoryHub(), base) as alice:
        joining = alice.service._joining
        begun, go_on = anyio.Event(), anyio.Event()
        take = joining._take

        async def slow(bundle: Any, most: int) -> Any:
            begun.set()
            await go_on.wait()
            return await take(bundle, most)

        with patch.object(joining, "_take", slow):
            for number in range(48):
                joining.invited(_Query("ezagent/nowhere", _invitation(number)))
                await asyncio.sleep(0)
        yield alice.service
        go_on.set()
        with anyio.fail_after(SECONDS):
            while joining._waiting:
                await anyio.sleep(0.01)


def _invitation(number: int) -> bytes:
    return encode_bundle([(RecordKind.CONTENT, bytes([number]) * MEBIBYTE)])


@contextmanager
def _congested() -> Iterator[object]:
    """Let agents write more than a link takes, and peers ask more than it answers."""
    sender = Sender(cast("MemoryNetwork", None), STOP_SECONDS)
    sender.send([Outgoing(f"k{number}", bytes([number]) * MEBIBYTE, b"", QOS_LOW) for number in range(64)])
    yield sender
    sender.send([Outgoing("k", b"", b"", QOS_LOW)])


@contextmanager
def _unread() -> Iterator[object]:
    """Let one peer ask for much and take nothing of it."""
    sender = Sender(cast("MemoryNetwork", None), STOP_SECONDS)
    for number in range(64):
        sender.reply(_Query("ezagent/nowhere", b""), Reply("greedy", bytes([number]) * MEBIBYTE))
    yield sender
    for query, _ in sender._answers.clear():
        query.drop()


@asynccontextmanager
async def _declared(_: Path) -> AsyncIterator[object]:
    """Have peers declare how many agents are held, each under a name as long as may be."""
    declared = DeclaredSandboxes(cast(Journal, None))
    record = full_delegation()
    assert record.declared_sandbox() is not None
    for number in range(3 * MAX_DECLARED):
        declared.note(record.model_copy(update={"agent": f"{number:064}"}))
    yield declared


PROBES: Sequence[Probe] = (
    KeptProbe(
        name="delegations: agents of peers, each held in a way of its own",
        covers=(
            "daemon.lending.declared:DeclaredSandboxes.__init__",
            "daemon.lending.declared:DeclaredSandboxes._bound",
        ),
        attack=lambda: within(_declared),
        bound=5 * MEBIBYTE,
        left=5 * MEBIBYTE,  # what a peer has declared is told of it later
    ),
    KeptProbe(
        name="audit log: long names that are denied",
        covers=("daemon.audit_log.log:AuditLog.__init__", "daemon.audit_log.log:_denials"),
        attack=lambda: within(_audited),
        bound=12 * MEBIBYTE,
        left=8 * MEBIBYTE,  # the newest entries stay for who follows the log
    ),
    KeptProbe(
        name="lent directory: changes without end",
        covers=("daemon.lending.change_notes:ChangeNotes.__init__",),
        attack=lambda: within(_changed),
        bound=3 * MEBIBYTE,
        left=3 * MEBIBYTE,
    ),
    KeptProbe(
        name="agents: delegations that jobs begin",
        covers=("daemon.working.onward:OnwardTools.__init__",),
        attack=lambda: within(_delegated_on),
        bound=128 << 10,
        left=128 << 10,
    ),
    KeptProbe(
        name="rooms: questions without end",
        covers=("messaging.syncing.doorkeeper:Doorkeeper.__init__",),
        attack=_questions,
        bound=192 << 10,
    ),
    KeptProbe(
        name="rooms: acknowledgements without end",
        covers=(
            "messaging.delivery.acknowledging:Acknowledging.__init__",
            "messaging.delivery.acknowledging:Acknowledging.run",
        ),
        attack=lambda: within(_acknowledged),
        bound=12 * MEBIBYTE,
    ),
    KeptProbe(
        name="rooms: invitations without end",
        covers=("messaging.membership.joining:Joining.__init__",),
        attack=lambda: within(_invited),
        bound=24 * MEBIBYTE,
    ),
    KeptProbe(
        name="rooms: a link that takes nothing",
        covers=("messaging.running.sender:Sender.__init__",),
        attack=_congested,
        bound=36 * MEBIBYTE,
        left=36 * MEBIBYTE,
    ),
    KeptProbe(
        name="rooms: answers for a peer that takes none",
        covers=("messaging.running.sender:Sender.__init__", "messaging.running.sender:Sender.reply"),
        attack=_unread,
        bound=20 * MEBIBYTE,
    ),
)
