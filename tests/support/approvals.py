"""A daemon's gate, grants, questions and approver on a real store, with a key that costs little to unseal."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
from nacl.signing import SigningKey

from sublet.daemon.api.approval_statements import approve_statement
from sublet.daemon.api.approvals import ApprovalView, ApproveRequest, ListApprovals, SetApprover, Terms
from sublet.daemon.approvals.approver import Approver
from sublet.daemon.approvals.gate_parts import GateParts
from sublet.daemon.approvals.grant_store import GrantStore
from sublet.daemon.approvals.questions import Questions
from sublet.daemon.approvals.run_facts import RunFacts
from sublet.daemon.approvals.run_gate import RunGate
from sublet.daemon.approvals.service import ApprovalParts, ApprovalService
from sublet.daemon.peering.nonces import NonceMemory
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.disk.set_aside import SetAside
from sublet.policy.config import parse
from sublet.policy.decision import Subject
from sublet.policy.engine import Policy
from sublet.policy.grants import Moment
from sublet.policy.lending import Protected
from sublet.protocol.canonical import JsonValue
from sublet.protocol.chain import Chain
from sublet.protocol.encoding import b64
from sublet.protocol.events import EventKeys
from sublet.protocol.sealed_key import seal
from sublet.protocol.statement_signing import sign_statement
from sublet.protocol.statements import Statement
from sublet.supervisor.job import Deadline, JobResource
from sublet.supervisor.tool_gate import ToolCall
from support.decisions import KeptDecisions, gatekeeper

DAEMON = "node-test"
PASSPHRASE = "correct horse battery"
APPROVAL: dict[str, JsonValue] = {
    "id": "ask-first",
    "effect": "approval",
    "action": "tool.call",
    "subject": {"kind": "agent"},
    "resource": "shell.exec",
}
"""A rule by which a person is asked before an agent runs a shell."""
NOBODY = Chain()
HUMAN = Subject("human")
AGENT = Subject("agent", "coder", role="executor")


class Clock:
    """Unix seconds that a test moves."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.boot = "first"
        self.slept = 0.0
        self._time = time.time
        self._up = time.monotonic

    def __call__(self) -> float:
        return self._time() + self.ahead

    def moment(self) -> Moment:
        """Return now by this clock, and by one that a test moves apart from it."""
        return Moment(self(), self.boot, self._up() + self.slept)


class Desk:
    """What stands around approvals in one daemon; ``open`` again on the same directory is a restart."""

    def __init__(
        self, store: Store, journal: Journal, policy: Policy, approver: Approver, grants: GrantStore, clock: Clock
    ) -> None:
        self.store = store
        self.journal = journal
        self.policy = policy
        self.grants = grants
        self.clock = clock
        self.approver = approver
        self.audit = KeptDecisions()
        self.questions = Questions(journal, grants, clock)
        self.gatekeeper = gatekeeper(journal, policy, self.audit)
        self.nests: dict[str, Sequence[str]] = {}
        self.strangers: set[str] = set()
        self.service = ApprovalService(
            ApprovalParts(
                self.gatekeeper,
                approver,
                grants,
                self.questions,
                DAEMON,
                lambda: self.nests,
                lambda key: None if key in self.strangers else Subject("agent", key, role="executor"),
                clock,
            )
        )

    def gate(
        self,
        subject: Subject = AGENT,
        *,
        scope: str = "ses_1",
        seconds: float = 60,
        access_mode: str = "rw",
        waiting: Callable[[str | None], None] = lambda _: None,
        chain: Chain = NOBODY,
    ) -> RunGate:
        """Return the gate of one run."""
        parts = GateParts(self.gatekeeper, self.journal, self.grants, self.questions, self.approver, self.clock)
        mode = "ro" if access_mode == "ro" else "rw"
        return RunGate(
            parts,
            RunFacts(
                subject=subject,
                scope=scope,
                resources=[JobResource("workspace", Path("/mnt/workspace"), "ro" if mode == "ro" else "rw")],
                keys=EventKeys(finger_session_id=scope, request_id="req_1"),
                deadline=Deadline(anyio.current_time() + seconds),
                waiting=waiting,
                chain=chain,
            ),
        )

    async def make_approver(self, key: SigningKey | None = None) -> SigningKey:
        """Pin a key whose passphrase is ``PASSPHRASE``."""
        key = key or SigningKey.generate()
        await self.service.set_approver(setting(key, key), HUMAN)
        return key

    async def asked(self) -> ApprovalView:
        """Return the first question, once somebody waits for it."""
        while True:
            found = await self.service.list_approvals(ListApprovals(), HUMAN)
            if found and found[0].waits:
                return found[0]
            await anyio.lowlevel.checkpoint()

    async def approve(self, key: SigningKey, view: ApprovalView, terms: Terms | None = None) -> ApprovalView:
        """Approve as a person does by the command line."""
        signed = sign_statement(approve_statement(DAEMON, view, terms or Terms()), key)
        return await self.service.approve(ApproveRequest(approval_id=view.id, signed=signed), HUMAN)

    async def kinds(self) -> list[str]:
        """Return the kinds of all events so far."""
        return [str(event.kind) for event in (await self.journal.events.events_after(0, limit=500)).events]


def setting(new: SigningKey, signer: SigningKey, daemon: str = DAEMON) -> SetApprover:
    """Return the request that pins ``new``, signed by ``signer``; unsealing it takes next to nothing."""
    sealed = seal(new, PASSPHRASE, operations=1, memory_bytes=8192)
    public_key = b64(bytes(new.verify_key))
    statement = Statement(
        daemon=daemon,
        decision="set-key",
        subject=public_key,
        digest=hashlib.sha256(sealed.encode()).hexdigest(),
    )
    return SetApprover(public_key=public_key, sealed=sealed, signed=sign_statement(statement, signer))


def call(tool: str = "shell.exec", call_id: str = "c1", **arguments: JsonValue) -> ToolCall:
    """Return a call of a tool."""
    return ToolCall(tool, arguments or {"command": "make deploy"}, call_id)


@asynccontextmanager
async def desk(
    directory: Path, rules: Sequence[Mapping[str, JsonValue]] = (), clock: Clock | None = None
) -> AsyncIterator[Desk]:
    """Open one on ``directory``, with ``rules`` in its policy."""
    clock = clock or Clock()
    store = await Store.open(directory / "sublet.db")
    try:
        journal = Journal(store, SetAside(directory))
        policy = Policy(Protected(Path("/nowhere")), parse({"version": 1, "global": [dict(rule) for rule in rules]}))
        grants = GrantStore(journal, clock.moment)
        nonces = await NonceMemory.load(store, clock)
        approver = await Approver.load(journal, grants, DAEMON, nonces, clock)
        yield Desk(store, journal, policy, approver, grants, clock)
    finally:
        await store.close()
