"""Federation of one daemon: presence, tasks given and tasks taken, over whatever carries its bytes."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

import anyio
import structlog

from sublet.federation.asking import Asking
from sublet.federation.broadcasts import Broadcasts
from sublet.federation.neighbours import Neighbour, Neighbours
from sublet.federation.own_statuses import OwnStatuses
from sublet.federation.ports import (
    Admission,
    Asked,
    Carrier,
    KnownNode,
    Ledger,
    Names,
    OwnAgent,
    Said,
    Telling,
    What,
    Work,
)
from sublet.federation.post import Own, Post, receipt_bytes
from sublet.federation.presence import Presence
from sublet.federation.settings import Settings
from sublet.federation.table import AgentEntry, AgentTable
from sublet.federation.working import Working
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.federation.addresses import AgentAddress, NodeName
from sublet.protocol.federation.envelope import Envelope
from sublet.protocol.federation.errors import FederationCode, TaskRefused
from sublet.protocol.federation.events import (
    CANCEL,
    PROGRESS,
    AgentMessage,
    TaskRequest,
    TaskResponse,
    TaskResult,
)
from sublet.protocol.federation.statuses import AgentStatus
from sublet.protocol.ids import AGENT_ID

TOGETHER_SECONDS: Final = 0.05
"""What happens within so long of one another is looked at together."""
MAX_COMPARED: Final = 1_000
"""Agents with one capability that are looked at for the best of them."""
MAX_COMPARED_OF_NODE: Final = 32
"""Of them of one node, so that one that has many leaves room for the others."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Around:
    """What federation is given of the rest of the daemon.

    Args:
        own: this node.
        settings: as they are now.
        known: the nodes whose keys are pinned.
        pinned: one of them by its node id.
        agents: ours that are offered now, and whether each is at work.
        names: keeps whose a name is.
        carrier: carries bytes.
        admission: asks policy.
        work: has our agents work.
        ledger: the journal of tasks.
        tell: the log of events.
        steady: seconds that never go back.
        wall: Unix seconds.
        chance: returns a number from 0 to 1, by which heartbeats are spread.
    """

    own: Own
    settings: Callable[[], Settings]
    known: Callable[[], Iterable[KnownNode]]
    pinned: Callable[[str], KnownNode | None]
    agents: Callable[[], Mapping[OwnAgent, bool]]
    names: Names
    carrier: Carrier
    admission: Admission
    work: Work
    ledger: Ledger
    tell: Telling
    steady: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    chance: Callable[[], float] = random.SystemRandom().random


@dataclass(frozen=True, slots=True)
class Choice:
    """An agent that was chosen, and why this one."""

    address: AgentAddress
    alias: str
    why: str


class Federation:
    """See the module. ``serve`` must run for anything to happen."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self.own = around.own
        self.table = AgentTable()
        self._wake = anyio.Event()
        self._statuses = OwnStatuses()
        steady, wall = around.steady, around.wall
        self.neighbours = Neighbours(
            around.own.name, around.known, around.pinned, around.names, around.settings, self.table.remove_node
        )
        self._post = Post(around.own, around.settings, self.neighbours, around.carrier, steady, wall)
        self._asking = Asking(around.own, self.neighbours, self.table, self._post, self._trusts, wall)
        self.broadcasts = Broadcasts(
            around.own,
            around.settings,
            self.neighbours,
            self._post,
            self._trusts,
            around.admission,
            around.tell,
            steady,
            wall,
        )
        self._working = Working(
            around.own,
            around.settings,
            self._offers,
            self._statuses,
            self._post,
            around.admission,
            around.work,
            around.ledger,
            around.tell,
            self.look,
            steady,
            wall,
        )
        self._presence = Presence(
            around.own,
            around.settings,
            around.agents,
            self._statuses,
            self.neighbours,
            self.table,
            self._post,
            around.carrier,
            around.admission,
            around.tell,
            self._working.greeted,
            self._soon,
            steady,
            wall,
            around.chance,
        )

    @property
    def on(self) -> bool:
        """Whether anything is told to other nodes, or taken from them."""
        return self._around.settings().on

    def paired(self) -> None:
        """Look at once who is paired: whoever is no more has nothing of us, and nothing here, from now on."""
        self._refresh()
        self.look()

    def _refresh(self) -> None:
        for gone in self.neighbours.refresh():
            self._working.forget(gone.node.id)

    def look(self) -> None:
        """Look at once what there is to tell: somebody was paired or reached, or an agent has changed."""
        self._presence.unsure()
        self._wake.set()

    def _soon(self) -> None:
        """Look at once what is due, where nothing has changed that each node has to be told."""
        self._wake.set()

    async def serve(self) -> None:
        """Run until cancelled, and leave then."""
        async with anyio.create_task_group() as group:
            try:
                self._presence.begin()
                await self._working.begin(group)
                while True:
                    again = anyio.current_time() + TOGETHER_SECONDS
                    self._refresh()
                    self._wake = anyio.Event()
                    pause = self._presence.round(group)
                    with anyio.move_on_after(pause):
                        await self._wake.wait()
                    # Of all that happens within a moment one round tells, which costs as much as there are nodes.
                    await anyio.sleep(max(0.0, again - anyio.current_time()))
            finally:
                self._working.end()
                await self._presence.leave()
                group.cancel_scope.cancel()

    async def receive(self, what: What, raw: bytes, link: str) -> bytes:
        """Return what is answered to a node.

        Args:
            what: it asks for.
            raw: as it came.
            link: node id of the key that its link has proven.
        """
        if not self.on:
            return receipt_bytes("", TaskRefused(FederationCode.NODE_UNREACHABLE, "federation is off here", "off"))
        event_id = ""
        try:
            if what == "server":
                return self._post.page(link)
            opened = await self._post.open(raw, link)
            if opened is None:
                return receipt_bytes("")
            neighbour, envelope = opened
            event_id = envelope.event_id
            async with neighbour.alone_with(event_id) as taken:
                if taken:
                    return receipt_bytes("")
                known = await self._take(neighbour, envelope)
                neighbour.first_seen(event_id)
        except TaskRefused as refusal:
            return receipt_bytes(event_id, refusal)
        except SubletError as error:
            return receipt_bytes(event_id, TaskRefused(FederationCode.AGENT_BUSY, error.message, str(error.code)))
        return receipt_bytes(event_id, known=known)

    async def _take(self, neighbour: Neighbour, envelope: Envelope) -> bool:
        event = envelope.events[0]
        match event:
            case TaskRequest():
                if not self._trusts(neighbour):
                    raise TaskRefused(
                        FederationCode.AGENT_NOT_FOUND, "this node takes no tasks of that node", "trusted"
                    )
                await self._working.take(neighbour, envelope, event)
            case TaskResponse():
                self._asking.take_response(neighbour, event)
            case AgentMessage() if event.to_agent is None:
                await self.broadcasts.take(neighbour, envelope, event)
            case AgentMessage() if event.message_type == PROGRESS:
                self._asking.take_progress(neighbour, event)
            case AgentMessage() if event.message_type == CANCEL:
                self._working.take_cancel(neighbour, event)
            case AgentMessage():
                raise TaskRefused(FederationCode.INVALID_PAYLOAD, "nobody here takes such messages", "message_type")
            case _:
                return await self._presence.take(neighbour, envelope)
        return True

    def target(self, text: str, visible: Callable[[AgentAddress], bool] = lambda _: True) -> AgentAddress:
        """Return the address that a text means: one in full, or a bare id that only one agent has.

        Args:
            text: as it was typed.
            visible: whether whoever has typed it may know of an agent.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` where it is none; ``NOT_FOUND`` where no agent has that id, ``CONFLICT``
                where several have.
        """
        if "@" in text:
            agent, _, node = text.lower().partition("@")
            mine = self.neighbours.by_alias(node)
            if mine is not None and text.isascii() and AGENT_ID.fullmatch(agent):
                # What the person calls a peer may hold what no node calls itself, such as an underscore.
                return AgentAddress(agent, NodeName(mine.node.alias))
            return AgentAddress.parse(text)
        found = [entry.address for entry in self.table.named(text.lower()).values()]
        if self._offers(text.lower()):
            found.append(AgentAddress(text.lower(), self.own.name))
        found = [one for one in found if visible(one)]
        if len(found) == 1:
            return found[0]
        if not found:
            raise SubletError(
                LocalCode.NOT_FOUND, f"no node has an agent {text[:80]!r}", "See: sublet agents --everywhere"
            )
        several = ", ".join(sorted(map(str, found))[:5])
        raise SubletError(
            LocalCode.CONFLICT, f"{len(found)} nodes have an agent {text[:80]!r}", f"Name one in full: {several}"
        )

    async def ask(self, asked: Asked) -> AsyncGenerator[Said | TaskResult, None]:
        """Yield what an agent of another node says while it works, then its result: as ``Asking.ask``.

        Raises:
            SubletError: ``UNAVAILABLE`` where federation is off, or too many tasks are awaited.
        """
        if not self.on:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                "federation is off here",
                "Set agent_federation.enabled and agent_federation.room.federate in federation.toml.",
            )
        async for piece in self._asking.ask(asked):
            yield piece

    def best(self, capability: str, usable: Callable[[AgentEntry, Neighbour], bool]) -> Choice | None:
        """Return the best agent of another node that has a capability: idle, then heard of last; None for none.

        Args:
            capability: which.
            usable: whether the caller may have it.
        """
        found = self._usable(capability, usable)
        if not found:
            return None
        return _choice(capability, min(found, key=_rank), 0, len(found))

    def several(self, capability: str, usable: Callable[[AgentEntry, Neighbour], bool], wanted: int) -> list[Choice]:
        """Return the best agents that have a capability, of as many nodes as there are; as many as wanted, or fewer.

        Args:
            capability: which.
            usable: whether the caller may have an agent.
            wanted: how many, at most.
        """
        found = sorted(self._usable(capability, usable), key=_rank)
        of_node: Counter[NodeName] = Counter()
        ranked: list[tuple[int, int]] = []
        for place, (entry, _) in enumerate(found):
            ranked.append((of_node[entry.address.node], place))
            of_node[entry.address.node] += 1
        return [_choice(capability, found[place], place, len(found)) for _, place in sorted(ranked)[:wanted]]

    def _usable(
        self, capability: str, usable: Callable[[AgentEntry, Neighbour], bool]
    ) -> list[tuple[AgentEntry, Neighbour]]:
        """Return the agents with a capability that may be had."""
        trusted: dict[NodeName, Neighbour | None] = {}

        def asked_at(node: NodeName) -> Neighbour | None:
            if node not in trusted:
                one = self.neighbours.named(node)
                trusted[node] = one if one is not None and one.greeted and self._trusts(one) else None
            return trusted[node]

        able = (
            (entry, neighbour)
            for entry in self.table.able(capability, MAX_COMPARED_OF_NODE)
            if (neighbour := asked_at(entry.address.node)) is not None
        )
        return [one for one in islice(able, MAX_COMPARED) if usable(*one)]

    def _trusts(self, neighbour: Neighbour) -> bool:
        """Tell whether tasks are exchanged with a node; of one that has not said its name yet nobody knows better."""
        settings = self._around.settings()
        return neighbour.name is None or settings.trusts(neighbour.name, neighbour.node.fingerprint)

    def _offers(self, agent_id: str) -> bool:
        return any(one.agent_id == agent_id for one in self._around.agents())

    def own_status(self, agent_id: str) -> str:
        """Return what an agent of ours is at."""
        busy = next((at_work for one, at_work in self._around.agents().items() if one.agent_id == agent_id), False)
        return self._statuses.told(agent_id, "", busy=busy)[0]


def _rank(one: tuple[AgentEntry, Neighbour]) -> tuple[bool, float, str]:
    """Order agents as they are asked: idle, then heard of last, then by their addresses."""
    entry = one[0]
    return entry.status != AgentStatus.IDLE, -entry.last_seen, str(entry.address)


def _choice(capability: str, found: tuple[AgentEntry, Neighbour], place: int, count: int) -> Choice:
    entry, neighbour = found
    which = ["first", "second", "third"][place] if place < 3 else f"number {place + 1}"
    others = f", the {which} of {count}" if count > 1 else ", the only one"
    return Choice(
        entry.address, neighbour.node.alias, f"{entry.address} has {capability} and is {entry.status}{others}"
    )
