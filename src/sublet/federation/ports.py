"""What federation needs of the rest of the daemon, as small typed interfaces that are passed in."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from sublet.protocol.canonical import JsonValue
from sublet.protocol.chain import Chain
from sublet.protocol.federation.addresses import AgentAddress, NodeName
from sublet.protocol.federation.events import TaskRequest, TaskResult

What = Literal["event", "server"]
"""What another node is asked: to take an event, or who it is."""


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node whose key is pinned here.

    Args:
        id: node id of its key, ``node-`` and 16 characters.
        public_key: raw Ed25519 key.
        fingerprint: of that key.
        alias: what the person here calls it.
        paired: whether it is a paired daemon, which can be lent a directory; else federation.toml lists its key.
    """

    id: str
    public_key: bytes
    fingerprint: str
    alias: str
    paired: bool = True


@dataclass(frozen=True, slots=True)
class OwnAgent:
    """An agent of ours, as it is told to other nodes."""

    agent_id: str
    runtime_type: str
    capabilities: tuple[str, ...]


class Carrier(Protocol):
    """Carries bytes to nodes and back; what it carries is signed, and it decides nothing."""

    async def ask(self, node: KnownNode, what: What, payload: bytes) -> bytes | None:
        """Return what a node answers; None where it is not reached, or says nothing in time."""

    def reaches(self, node: KnownNode) -> bool:
        """Tell whether there is a link to a node now."""


class Names(Protocol):
    """Keeps to which key each name of a node belongs: the first key that had it keeps it."""

    async def bind(self, name: NodeName, fingerprint: str) -> str | None:
        """Bind a name to a key, on the disk; return None, or the fingerprint that has the name already.

        Raises:
            SubletError: ``UNAVAILABLE`` where there are too many names, or the disk takes none.
        """


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task of another node's that was taken here.

    Args:
        request_id: as the other node chose it.
        node_id: of that node's key.
        result: None while it is at work.
    """

    request_id: str
    node_id: str
    agent_id: str
    requester: str
    result: TaskResult | None


class Ledger(Protocol):
    """The journal of tasks: what is written there is on the disk before anything comes of it."""

    async def take(self, row: TaskRow) -> TaskRow | None:
        """Write down a task that is about to be started; None where it is new, else what is known of it."""

    async def end(self, row: TaskRow) -> None:
        """Write down the result of a task, which its node has not heard yet."""

    async def heard(self, row: TaskRow) -> None:
        """Write down that the node has taken the result."""

    async def unheard(self, node_id: str) -> Sequence[TaskRow]:
        """Return the oldest results that a node has not taken yet, some at once, the oldest first."""

    async def interrupt(self, result: TaskResult) -> int:
        """End all tasks that an earlier process had started with ``result``; return how many."""


@dataclass(frozen=True, slots=True)
class AdmittedTask:
    """A task that policy has admitted.

    Args:
        node: who asks.
        name: of that node.
        agent_id: of ours.
        request: as it came.
        chain: who called until here.
    """

    node: KnownNode
    name: NodeName
    agent_id: str
    request: TaskRequest
    chain: Chain


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of what an agent says while it works."""

    text: str


class Work(Protocol):
    """Has an agent of ours work."""

    def run(self, task: AdmittedTask) -> AsyncGenerator[Said | TaskResult, None]:
        """Yield what is said, and the result at the end; closing it earlier ends the work.

        Raises:
            SubletError: it can't be done; the code says why.
        """


class Admission(Protocol):
    """Asks policy, with the node as the subject."""

    async def hears(self, node: KnownNode, name: NodeName, kind: str, namespace: str) -> bool:
        """Tell whether what a node tells of its agents is taken."""

    def tells(self, node: KnownNode, name: NodeName, agent_id: str) -> bool:
        """Tell whether a node may know of an agent of ours."""

    async def task(self, task: AdmittedTask, namespace: str) -> None:
        """Return if a task may be started.

        Raises:
            SubletError: ``POLICY_DENIED``, or ``NOT_FOUND`` where a rule hides the agent.
        """


class Telling(Protocol):
    """Tells the person of what happens: the log of events."""

    async def __call__(self, what: Literal["node", "agent", "task", "message"], data: Mapping[str, JsonValue]) -> None:
        """Write an event down."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A task for an agent of another node, or of this one.

    Args:
        to: whose it is.
        prompt: what is to be done.
        sender: address of who asks.
        seconds: how long it may take, until its answer is here.
        context: what else the agent should know.
        queue_if_offline: whether to wait for a node that is not reached.
        chain: who called until here.
    """

    to: AgentAddress
    prompt: str
    sender: AgentAddress
    seconds: int
    context: str | None = None
    queue_if_offline: bool = False
    chain: Chain = field(default_factory=Chain)
