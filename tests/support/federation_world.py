"""Nodes of federation in one process: their real code, a carrier that hands bytes over, a clock of the test's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

import anyio
import anyio.lowlevel
from nacl.signing import SigningKey

from sublet.federation.node import Around, Federation
from sublet.federation.ports import AdmittedTask, Asked, KnownNode, OwnAgent, Said, TaskRow, What
from sublet.federation.post import Own
from sublet.federation.settings import PeerSettings, RoomSettings, Settings
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import SubletError
from sublet.protocol.federation.addresses import AgentAddress, NodeName, node_name
from sublet.protocol.federation.events import TaskRequest, TaskResult
from sublet.protocol.ids import fingerprint, node_id

SECONDS = 20


@dataclass
class Ledger:
    """``Ledger`` and ``Names`` in memory, which outlive a node as the disk does."""

    rows: dict[tuple[str, str], TaskRow] = field(default_factory=dict)
    taken: set[tuple[str, str]] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)

    async def take(self, row: TaskRow) -> TaskRow | None:
        known = self.rows.get((row.node_id, row.request_id))
        if known is None:
            self.rows[row.node_id, row.request_id] = row
        return known

    async def end(self, row: TaskRow) -> None:
        self.rows[row.node_id, row.request_id] = row

    async def heard(self, row: TaskRow) -> None:
        self.taken.add((row.node_id, row.request_id))

    async def unheard(self, node_id: str) -> Sequence[TaskRow]:
        return [
            row
            for key, row in self.rows.items()
            if row.node_id == node_id and row.result is not None and key not in self.taken
        ]

    async def interrupt(self, result: TaskResult) -> int:
        left = [key for key, row in self.rows.items() if row.result is None]
        for key in left:
            self.rows[key] = replace(self.rows[key], result=result)
        return len(left)

    async def bind(self, name: NodeName, fingerprint: str) -> str | None:
        first = self.names.setdefault(name, fingerprint)
        return None if first == fingerprint else first


@dataclass
class Node:
    """One node: what it is made of, and what came to it."""

    world: World
    alias: str
    own: Own
    settings: Settings
    agents: dict[OwnAgent, bool]
    ledger: Ledger = field(default_factory=Ledger)
    started: list[str] = field(default_factory=list)
    """Prompts of the tasks that were started."""
    released: anyio.Event = field(default_factory=anyio.Event)
    told: list[tuple[str, Mapping[str, JsonValue]]] = field(default_factory=list)
    sent: list[tuple[str, What, bytes]] = field(default_factory=list)
    """To whom, and what, in the order in which it was sent."""
    denies: SubletError | None = None
    forgotten: set[str] = field(default_factory=set)
    """Nodes whose keys are pinned no more."""
    federation: Federation = field(init=False)

    def make(self) -> Federation:
        """Make it anew, as a start of the daemon does."""
        self.federation = Federation(
            Around(
                own=self.own,
                settings=lambda: self.settings,
                known=lambda: [
                    other.known()
                    for other in self.world.nodes
                    if other is not self and other.alias not in self.forgotten
                ],
                pinned=self._pinned,
                agents=lambda: self.agents,
                names=self.ledger,
                carrier=self,
                admission=self,
                work=self,
                ledger=self.ledger,
                tell=self._tell,
                steady=lambda: self.world.steady,
                wall=lambda: self.world.wall,
            )
        )
        return self.federation

    def _pinned(self, node: str) -> KnownNode | None:
        found = next((one for one in self.world.nodes if one.own.node_id == node), None)
        return found.known() if found is not None and found.alias not in self.forgotten else None

    def known(self) -> KnownNode:
        """Return it as the others have pinned it."""
        key = bytes(self.own.key.verify_key)
        return KnownNode(node_id(key), key, fingerprint(key), self.alias)

    async def _tell(self, what: Literal["node", "agent", "task", "message"], data: Mapping[str, JsonValue]) -> None:
        self.told.append((what, data))

    # Carrier

    async def ask(self, node: KnownNode, what: What, payload: bytes) -> bytes | None:
        other = self.world.by_id(node.id)
        if not self.reaches(node):
            return None
        self.sent.append((other.alias, what, payload))
        await anyio.lowlevel.checkpoint()
        return await other.federation.receive(what, payload, self.own.node_id)

    def reaches(self, node: KnownNode) -> bool:
        other = self.world.by_id(node.id)
        return {self.alias, other.alias} <= self.world.up and frozenset((self.alias, other.alias)) not in self.world.cut

    # Admission

    async def hears(self, node: KnownNode, name: NodeName, kind: str, namespace: str) -> bool:
        return True

    def tells(self, node: KnownNode, name: NodeName, agent_id: str) -> bool:
        return True

    async def task(self, task: AdmittedTask, namespace: str) -> None:
        if self.denies is not None:
            raise self.denies

    # Work

    async def run(self, task: AdmittedTask) -> AsyncGenerator[Said | TaskResult, None]:
        prompt = task.request.task.prompt
        self.started.append(prompt)
        if prompt == "wait":
            yield Said("waiting")
            await self.released.wait()
        yield TaskResult(success=True, output=f"{task.agent_id} did {prompt}", exit_code=0)

    async def result(self, to: str, prompt: str, *, seconds: int = 10, wait: bool = False) -> TaskResult:
        """Ask an agent of another node, and return what came of it."""
        asked = Asked(
            AgentAddress.parse(to), prompt, AgentAddress("human", self.own.name), seconds, queue_if_offline=wait
        )
        ends = [piece async for piece in self.federation.ask(asked) if isinstance(piece, TaskResult)]
        assert len(ends) == 1
        return ends[0]

    def addresses(self) -> list[str]:
        """Return the agents of others that it knows."""
        return [str(entry.address) for entry in self.federation.table.all()]


class World:
    """Some nodes that all have pinned each other's keys."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.up: set[str] = set()
        self.cut: set[frozenset[str]] = set()
        self.steady = 1_000.0
        self.wall = 1_800_000_000.0

    def add(self, alias: str, agent: str = "worker-1", name: str | None = None, **changes: object) -> Node:
        """Add a node ``alias.local`` with one agent."""
        key = SigningKey(alias.encode().ljust(32, b"\0")[:32])
        public = bytes(key.verify_key)
        own = Own(node_name(name or f"{alias}.local"), key, node_id(public), fingerprint(public))
        node = Node(self, alias, own, Settings.model_validate(changes), {OwnAgent(agent, "claude", ("test",)): False})
        self.nodes.append(node)
        node.make()
        return node

    def by_id(self, wanted: str) -> Node:
        """Return the node of a key."""
        return next(one for one in self.nodes if one.own.node_id == wanted)

    def pass_time(self, seconds: float) -> None:
        """Let time go by for all of them."""
        self.steady += seconds
        self.wall += seconds
        self.look()

    def look(self) -> None:
        """Have all of them look what there is to do."""
        for node in self.nodes:
            node.federation.look()

    @asynccontextmanager
    async def running(self, *nodes: Node) -> AsyncIterator[None]:
        """Run nodes, and stop them in order."""
        async with anyio.create_task_group() as group:
            for node in nodes:
                self.up.add(node.alias)
                group.start_soon(node.federation.serve)
            self.look()
            try:
                yield
            finally:
                group.cancel_scope.cancel()
        self.up -= {node.alias for node in nodes}


async def until(condition: Callable[[], object], what: str = "it") -> None:
    """Wait until a condition holds."""
    with anyio.move_on_after(SECONDS):
        while not condition():
            await anyio.sleep(0.005)
        return
    raise AssertionError(f"{what} did not come")


def trusting(**peers: bool) -> Settings:
    """Return settings that trust these peers, or not."""
    return Settings(peers=[PeerSettings(node_id=f"{name}.local", trusted=is_so) for name, is_so in peers.items()])


def in_namespace(name: str) -> Settings:
    """Return settings of another namespace."""
    return Settings(room=RoomSettings(namespace=name))


Act = Callable[[], Awaitable[None]]


def request(node: Node, to: str, prompt: str = "it", request_id: str = "req-1", sender: str = "") -> TaskRequest:
    """Return a task request as a node would send it."""
    return TaskRequest.model_validate(
        {
            "request_id": request_id,
            "from_agent": sender or f"human@{node.own.name}",
            "to_agent": to,
            "task": {"task_id": request_id, "prompt": prompt},
            "timestamp": "2026-02-08T10:35:00Z",
        }
    )
