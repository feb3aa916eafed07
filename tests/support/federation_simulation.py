"""Many nodes of federation on a network that delays, loses and parts, by a virtual clock and from one seed.

The nodes run the product's own code, with its table, its signatures and its limits; only the network, the journal and
the agents are made up. Each node is behind one of some routers, which pass on what is for others.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import anyio
from anyio.abc import TaskGroup
from nacl.signing import SigningKey

from sublet.daemon.rooms.node_carrier import ASK_SECONDS
from sublet.federation.node import Around, Federation
from sublet.federation.ports import AdmittedTask, KnownNode, OwnAgent, Said, What
from sublet.federation.post import Own
from sublet.federation.settings import Settings
from sublet.protocol.canonical import JsonValue
from sublet.protocol.federation.addresses import NodeName, node_name
from sublet.protocol.federation.events import TaskResult
from sublet.protocol.ids import fingerprint, node_id
from support.federation_world import Ledger

BEGAN: Final = 1_800_000_000.0
"""Unix seconds at second 0."""
LOOK_SECONDS: Final = 1.0
DELAY_SECONDS: Final = 0.02
"""Of a message on its way to a router and on from it, in the mean."""
CAPABILITIES: Final = ("test", "review", "coding", "docs")


@dataclass(slots=True)
class Traffic:
    """Bytes of one node since somebody looked."""

    sent: int = 0
    received: int = 0
    messages: int = 0


@dataclass(eq=False)
class SimulatedNode:
    """One node, and the network as it sees it."""

    net: SimulatedNet
    number: int
    router: int
    agents: int

    def __post_init__(self) -> None:
        key = SigningKey(f"{self.net.seed}/{self.number}".encode().ljust(32, b".")[:32])
        public = bytes(key.verify_key)
        self.own = Own(node_name(f"node-{self.number}.test"), key, node_id(public), fingerprint(public))
        self.known = KnownNode(self.own.node_id, public, self.own.fingerprint, f"n{self.number}")
        self.ledger = Ledger()
        self.traffic = Traffic()
        self.ends: anyio.CancelScope | None = None
        self.federation = self._made()

    def _made(self) -> Federation:
        net = self.net
        offered = {
            OwnAgent(f"worker-{at}", "claude", (CAPABILITIES[(self.number + at) % len(CAPABILITIES)],)): False
            for at in range(self.agents)
        }
        return Federation(
            Around(
                own=self.own,
                settings=lambda: net.settings,
                known=lambda: [one for one in net.known.values() if one is not self.known],
                pinned=net.known.get,
                agents=lambda: offered,
                names=self.ledger,
                carrier=self,
                admission=self,
                work=_Worker(),
                ledger=self.ledger,
                tell=self._tell,
                steady=anyio.current_time,
                wall=lambda: BEGAN + anyio.current_time(),
                chance=net.rng.random,
            )
        )

    @property
    def addresses(self) -> set[tuple[str, str]]:
        """Node and id of its agents."""
        return {(self.own.name, f"worker-{at}") for at in range(self.agents)}

    def view(self) -> set[tuple[str, str]]:
        """Return node and id of the agents of others that it knows."""
        return {(entry.address.node, entry.address.agent_id) for entry in self.federation.table.all()}

    async def run(self) -> None:
        """Run until it leaves or dies."""
        self.federation = self._made()  # nothing that was in memory outlives a process
        with anyio.CancelScope() as self.ends:
            await self.federation.serve()

    def leave(self) -> None:
        """Stop it in order, so that it tells the others."""
        assert self.ends is not None
        self.ends.cancel()

    def die(self) -> None:
        """Let it be gone without a word."""
        self.net.dead.add(self.number)
        self.leave()

    # Carrier

    async def ask(self, node: KnownNode, what: What, payload: bytes) -> bytes | None:
        return await self.net.carry(self, node, what, payload)

    def reaches(self, node: KnownNode) -> bool:
        # As over a relay: that there is a way to it tells nothing of whether it is there.
        return self.number not in self.net.dead

    # Admission

    async def hears(self, node: KnownNode, name: NodeName, kind: str, namespace: str) -> bool:
        return True

    def tells(self, node: KnownNode, name: NodeName, agent_id: str) -> bool:
        return True

    async def task(self, task: AdmittedTask, namespace: str) -> None: ...

    async def _tell(self, what: Literal["node", "agent", "task", "message"], data: Mapping[str, JsonValue]) -> None: ...


class _Worker:
    async def run(self, task: AdmittedTask) -> AsyncGenerator[Said | TaskResult, None]:
        yield TaskResult(success=True, output="done", exit_code=0)


@dataclass(eq=False)
class SimulatedNet:
    """The network, and all that is on it.

    Args:
        count: of nodes.
        agents: of each node.
        seed: decides everything.
        loss: part of all messages, questions and answers alike, that is lost.
        routers: behind which the nodes are.
        settings: of all nodes.
    """

    count: int
    agents: int = 1
    seed: int = 1
    loss: float = 0.0
    routers: int = 1
    settings: Settings = field(default_factory=Settings)
    nodes: list[SimulatedNode] = field(default_factory=list)
    known: dict[str, KnownNode] = field(default_factory=dict)
    up: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    parted: frozenset[int] = frozenset()
    """Routers that are cut off from all others."""
    by_router: Counter[int] = field(default_factory=Counter)
    """Bytes that each router has passed on to others."""
    between_routers: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self._by_id: dict[str, SimulatedNode] = {}
        for number in range(self.count):
            node = SimulatedNode(self, number, number % self.routers, self.agents)
            self.nodes.append(node)
            self.known[node.own.node_id] = node.known
            self._by_id[node.own.node_id] = node

    def begin(self, group: TaskGroup, numbers: Iterable[int], within: float) -> None:
        """Start nodes, each at a time of its own within so many seconds."""

        async def later(number: int, seconds: float) -> None:
            await anyio.sleep(seconds)
            self.dead.discard(number)
            self.up.add(number)
            try:
                await self.nodes[number].run()
            finally:
                self.up.discard(number)

        for number in numbers:
            group.start_soon(later, number, self.rng.uniform(0, within))

    async def carry(self, sender: SimulatedNode, node: KnownNode, what: What, payload: bytes) -> bytes | None:
        """Take a question to a node, and its answer back."""
        other = self._by_id[node.id]
        if sender.number in self.dead:
            return None
        if await self._passed(sender, other, len(payload)):
            if other.number not in self.up - self.dead:
                return None  # whoever forwards knows that it is not linked, and says so at once
            answer = await other.federation.receive(what, payload, sender.own.node_id)
            if await self._passed(other, sender, len(answer)):
                return answer
        await anyio.sleep(ASK_SECONDS)
        return None

    async def _passed(self, sender: SimulatedNode, other: SimulatedNode, size: int) -> bool:
        """Send so many bytes; tell whether they have come."""
        sender.traffic.sent += size
        sender.traffic.messages += 1
        self.by_router[sender.router] += size
        if sender.router != other.router:
            self.between_routers += size
        await anyio.sleep(self.rng.expovariate(1 / DELAY_SECONDS))
        if self.rng.random() < self.loss or not self._joined(sender, other):
            return False
        other.traffic.received += size
        return True

    def _joined(self, sender: SimulatedNode, other: SimulatedNode) -> bool:
        return (sender.router in self.parted) == (other.router in self.parted)

    def wanted(self, node: SimulatedNode) -> set[tuple[str, str]]:
        """Return the agents that a node has to know: those of all that are there and that it reaches."""
        return {
            address
            for number in self.up - self.dead
            if number != node.number and self._joined(node, self.nodes[number])
            for address in self.nodes[number].addresses
        }

    def apart(self) -> int:
        """Return how many nodes know another thing than what is so."""
        return sum(self.nodes[at].view() != self.wanted(self.nodes[at]) for at in self.up - self.dead)

    async def converged(self, most_seconds: float) -> float:
        """Wait until all views are right; return the seconds that this took, infinity where they are not by then."""
        began = anyio.current_time()
        while anyio.current_time() - began <= most_seconds:
            if self.apart() == 0:
                return anyio.current_time() - began
            await anyio.sleep(LOOK_SECONDS)
        return math.inf

    async def measured(self, seconds: float) -> Traffic:
        """Return the traffic of a node in so many seconds, the mean of all that are there."""
        for node in self.nodes:
            node.traffic = Traffic()
        self.by_router.clear()
        self.between_routers = 0
        await anyio.sleep(seconds)
        there = [self.nodes[at].traffic for at in self.up - self.dead]
        return Traffic(
            sum(one.sent for one in there) // len(there),
            sum(one.received for one in there) // len(there),
            sum(one.messages for one in there) // len(there),
        )


@dataclass(frozen=True, slots=True)
class Story:
    """What came of one run; seconds of the virtual clock until all views were right after each thing."""

    joined: float
    left: float
    died: float
    parted: float
    healed: float
    came_back: float
    sent: float
    """Bytes of a node and second while nothing happens."""
    received: float
    between_routers: float
    messages: float


async def story(net: SimulatedNet, most: float = 600.0, report: Callable[[str], None] = lambda _: None) -> Story:
    """Let all nodes join, some leave, some die, half be parted and healed, and those come back."""
    found: dict[str, float] = {}

    async def until(what: str) -> None:
        found[what] = await net.converged(most)
        report(f"{what}: {found[what]:.0f} s")

    async with anyio.create_task_group() as group:
        net.begin(group, range(net.count), 60.0)
        await anyio.sleep(60.0)
        await until("joined")
        period = net.settings.heartbeat_interval_secs
        quiet = await net.measured(2 * period)
        between = net.between_routers / (2 * period)
        chosen = net.rng.sample(range(net.count), max(2, net.count // 5))
        leaving, dying = chosen[::2], chosen[1::2]
        for number in leaving:
            net.nodes[number].leave()
        await anyio.sleep(1.5)  # what a stop takes
        await until("left")
        for number in dying:
            net.nodes[number].die()
        await until("died")
        net.parted = frozenset(range(net.routers // 2))
        await until("parted")
        net.parted = frozenset()
        await until("healed")
        net.begin(group, chosen, 5.0)
        await anyio.sleep(5.0)
        await until("came_back")
        group.cancel_scope.cancel()
    return Story(
        **found,
        sent=quiet.sent / (2 * period),
        received=quiet.received / (2 * period),
        between_routers=between,
        messages=quiet.messages / (2 * period),
    )
