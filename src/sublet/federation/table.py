"""Which agents there are on other nodes, by their full addresses (federation "路由表结构").

Rules:

- An agent is known by its address: the same id on two nodes is two agents.
- Only the node of an agent changes what is known of it; the caller has proven which node speaks.
- An agent of which nothing was heard for a time is gone, by this process's own steady clock. Nothing of this outlives
  the process: after a restart the table is filled by those who are there.
- The number of agents, of each node and of all, is bounded.

Looking up an address, a bare id or a capability takes no walk over the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sublet.protocol.federation.addresses import AgentAddress, NodeName
from sublet.protocol.federation.statuses import AgentStatus

MAX_AGENTS_OF_NODE: Final = 4_096
MAX_AGENTS: Final = 131_072
MAX_EVICTED: Final = 16_384
"""In one pass, which holds up everything else in this process; the next one takes what is left."""


@dataclass(slots=True, eq=False)
class AgentEntry:
    """What is known of an agent of another node.

    Args:
        address: its own.
        runtime_type: as its node says.
        capabilities: as its node says.
        status: as its node says; ``idle`` until it says more.
        current_task: id of the task it is at, where that is one of ours.
        seen: seconds of the steady clock when it was last heard of.
        last_seen: the same in Unix seconds, for people.
    """

    address: AgentAddress
    runtime_type: str
    capabilities: tuple[str, ...]
    status: str
    current_task: str | None
    seen: float
    last_seen: float


class TableFull(Exception):
    """No more agents are taken, of this node or at all."""


class AgentTable:
    """Agents of other nodes."""

    def __init__(self, most: int = MAX_AGENTS, most_of_node: int = MAX_AGENTS_OF_NODE) -> None:
        self._most = most
        self._most_of_node = most_of_node
        self._count = 0
        self._nodes: dict[NodeName, dict[str, AgentEntry]] = {}
        self._ids: dict[str, AgentEntry | dict[NodeName, AgentEntry]] = {}
        """By id: the agent itself where only one node has it, as is usual, since a mapping for each took a quarter of
        all that the table holds.
        """
        self._able: dict[str, dict[NodeName, dict[str, AgentEntry]]] = {}

    def __len__(self) -> int:
        """Return how many agents there are."""
        return self._count

    def register(
        self,
        address: AgentAddress,
        runtime_type: str,
        capabilities: Sequence[str],
        *,
        steady: float,
        wall: float,
    ) -> bool:
        """Take an agent, or what is new of it; return whether it was not known.

        Args:
            address: on the node that speaks.
            runtime_type: of it.
            capabilities: of it.
            steady: seconds of the steady clock, now.
            wall: Unix seconds, now.

        Raises:
            TableFull: there is no room for it.
        """
        of_node = self._nodes.get(address.node)
        known = of_node.get(address.agent_id) if of_node is not None else None
        if known is not None:
            self._unable(known)
            known.runtime_type, known.capabilities = runtime_type, tuple(dict.fromkeys(capabilities))
            known.seen, known.last_seen = steady, wall
            self._enable(known)
            return False
        if self._count >= self._most or (of_node is not None and len(of_node) >= self._most_of_node):
            raise TableFull(f"no room for {address}")
        entry = AgentEntry(
            address, runtime_type, tuple(dict.fromkeys(capabilities)), AgentStatus.IDLE, None, steady, wall
        )
        self._nodes.setdefault(address.node, {})[address.agent_id] = entry
        of_id = self._ids.setdefault(address.agent_id, entry)
        if isinstance(of_id, dict):
            of_id[address.node] = entry
        elif of_id is not entry:
            self._ids[address.agent_id] = {of_id.address.node: of_id, address.node: entry}
        self._enable(entry)
        self._count += 1
        return True

    def touch(self, node: NodeName, agent_id: str, status: str, *, steady: float, wall: float) -> bool:
        """Note that an agent is there still; return False where nobody knows it, so that its node has to tell it."""
        of_node = self._nodes.get(node)
        entry = of_node.get(agent_id) if of_node is not None else None
        if entry is None:
            return False
        entry.status, entry.seen, entry.last_seen = status, steady, wall
        return True

    def set_status(
        self, node: NodeName, agent_id: str, status: str, current_task: str | None, *, steady: float, wall: float
    ) -> bool:
        """Note what an agent is at; return False where nobody knows it."""
        if not self.touch(node, agent_id, status, steady=steady, wall=wall):
            return False
        self._nodes[node][agent_id].current_task = current_task
        return True

    def remove(self, address: AgentAddress) -> bool:
        """Forget an agent; return whether it was known."""
        of_node = self._nodes.get(address.node, {})
        entry = of_node.pop(address.agent_id, None)
        if entry is None:
            return False
        if not of_node:
            del self._nodes[address.node]
        of_id = self._ids[address.agent_id]
        if isinstance(of_id, dict):
            del of_id[address.node]
        if of_id is entry or not of_id:
            del self._ids[address.agent_id]
        self._unable(entry)
        self._count -= 1
        return True

    def remove_node(self, node: NodeName) -> list[AgentAddress]:
        """Forget all agents of a node; return them."""
        gone = [entry.address for entry in self.of_node(node)]
        for address in gone:
            self.remove(address)
        return gone

    def evict(self, before: float) -> list[AgentEntry]:
        """Forget agents of which nothing was heard since ``before``, seconds of the steady clock; return them.

        Of more than ``MAX_EVICTED`` those are left which the next pass finds.
        """
        silent = (entry for of_node in self._nodes.values() for entry in of_node.values() if entry.seen < before)
        gone = list(islice(silent, MAX_EVICTED))
        for entry in gone:
            self.remove(entry.address)
        return gone

    def oldest(self) -> float | None:
        """Return when the agent that was silent the longest was heard of; None where there is none."""
        return min((entry.seen for of_node in self._nodes.values() for entry in of_node.values()), default=None)

    def find(self, address: AgentAddress) -> AgentEntry | None:
        """Return what is known of an agent, or None."""
        of_node = self._nodes.get(address.node)
        return of_node.get(address.agent_id) if of_node is not None else None

    def named(self, agent_id: str) -> Mapping[NodeName, AgentEntry]:
        """Return the agents with an id, by node."""
        of_id = self._ids.get(agent_id, {})
        return of_id if isinstance(of_id, dict) else {of_id.address.node: of_id}

    def able(self, capability: str, most_of_node: int = MAX_AGENTS_OF_NODE) -> Iterator[AgentEntry]:
        """Yield the agents that have a capability, of each node so many at most."""
        for of_node in self._able.get(capability, {}).values():
            yield from islice(of_node.values(), most_of_node)

    def of_node(self, node: NodeName) -> list[AgentEntry]:
        """Return what is known of the agents of one node, in the order in which they came."""
        return list(self._nodes.get(node, {}).values())

    def all(self) -> list[AgentEntry]:
        """Return all agents, by node and id."""
        return [self._nodes[node][agent] for node in sorted(self._nodes) for agent in sorted(self._nodes[node])]

    def nodes(self) -> list[NodeName]:
        """Return the nodes that have agents, by name."""
        return sorted(self._nodes)

    def _enable(self, entry: AgentEntry) -> None:
        node, agent_id = entry.address.node, entry.address.agent_id
        for capability in entry.capabilities:
            self._able.setdefault(capability, {}).setdefault(node, {})[agent_id] = entry

    def _unable(self, entry: AgentEntry) -> None:
        node, agent_id = entry.address.node, entry.address.agent_id
        for capability in entry.capabilities:
            of_it = self._able[capability]
            del of_it[node][agent_id]
            if not of_it[node]:
                del of_it[node]
            if not of_it:
                del self._able[capability]
