"""The nodes whose keys are pinned here: how each is called, and how it stands with each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

import anyio
import structlog

from sublet.federation.ports import KnownNode, Names, OwnAgent
from sublet.federation.settings import Settings
from sublet.protocol.federation.addresses import NodeName
from sublet.protocol.federation.errors import FederationCode, TaskRefused

MAX_SEEN: Final = 4_096
"""Ids of envelopes of one node that are remembered, the newest. An older one that comes again is its own signer's; what
must not happen twice, a task, is in the journal.
"""
MAX_LOUD: Final = 8
"""Reasons for which a node gets nothing that are in the log, each once: each of its envelopes could give another."""
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0

State = Literal["reached", "silent", "refused"]

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class Neighbour:
    """One node.

    Args:
        node: its key, and what it is called here.
        name: what it calls itself; None until it has said so, with a name that nobody else has.
        refused: why nothing is exchanged with it; empty where something is.
        greeted: whether it knows of our agents.
        due: seconds of the steady clock at which it is looked after again.
        pause: seconds until it is tried again.
        beat_at: when our agents were told of last, by the steady clock.
        unsure: whether it may not know all that there is to tell of our agents.
        answer_to: id of the registration that it waits for an answer to; empty for none.
        heard: Unix seconds of what came from it last.
        told: agents of ours of which it knows, as they were told.
        at: what it was told that they are at: status, and the id of its own task.
        seen: ids of envelopes that it has sent, and that were taken.
        taking: ids of those that are being taken; the same one again waits until it is known what became of it.
        loud: reasons that were told loudly.
    """

    node: KnownNode
    name: NodeName | None = None
    refused: str = ""
    greeted: bool = False
    due: float = 0.0
    pause: float = FIRST_PAUSE_SECONDS
    beat_at: float = 0.0
    unsure: bool = False
    answer_to: str = ""
    heard: float | None = None
    told: dict[str, OwnAgent] = field(default_factory=dict)
    at: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    seen: OrderedDict[str, None] = field(default_factory=OrderedDict)
    taking: dict[str, anyio.Lock] = field(default_factory=dict)
    loud: set[str] = field(default_factory=set)

    @property
    def state(self) -> State:
        """How it stands with it, in a word."""
        return "refused" if self.refused else "reached" if self.greeted else "silent"

    def first_seen(self, event_id: str) -> bool:
        """Tell whether an id is new, and remember it."""
        if event_id in self.seen:
            return False
        self.seen[event_id] = None
        if len(self.seen) > MAX_SEEN:
            self.seen.popitem(last=False)
        return True

    @asynccontextmanager
    async def alone_with(self, event_id: str) -> AsyncIterator[bool]:
        """Take an envelope while the same one, on whichever way it comes, waits; yield whether it was taken before."""
        lock = self.taking.setdefault(event_id, anyio.Lock(fast_acquire=True))
        try:
            async with lock:
                yield event_id in self.seen
        finally:
            if not lock.statistics().tasks_waiting and not lock.locked():
                self.taking.pop(event_id, None)

    def lost(self, now: float) -> None:
        """Note that it was not reached: it is greeted anew, later each time."""
        self.greeted = False
        self.due = now + self.pause
        self.pause = min(2 * self.pause, LONGEST_PAUSE_SECONDS)

    def found(self) -> None:
        """Note that it was reached."""
        self.greeted = True
        self.pause = FIRST_PAUSE_SECONDS


class Neighbours:
    """All of them.

    Args:
        own: our name.
        known: returns the nodes whose keys are pinned.
        pinned: returns one of them by its node id, however many there are.
        names: keeps whose a name is.
        settings: as they are now.
        unnamed: called with a name that a node does not go by any more, or not rightly.
    """

    def __init__(
        self,
        own: NodeName,
        known: Callable[[], Iterable[KnownNode]],
        pinned: Callable[[str], KnownNode | None],
        names: Names,
        settings: Callable[[], Settings],
        unnamed: Callable[[NodeName], object],
    ) -> None:
        self._own = own
        self._known = known
        self._pinned = pinned
        self._names = names
        self._settings = settings
        self._unnamed = unnamed
        self._by_id: dict[str, Neighbour] = {}
        self._by_name: dict[NodeName, Neighbour] = {}
        self._by_alias: dict[str, Neighbour] = {}

    def refresh(self) -> list[Neighbour]:
        """Look who is paired now; return those who are no more."""
        known = {node.id: node for node in self._known()}
        # Whom federation.toml lists after its pairing has ended is another node to policy: what it had before ends.
        gone = [
            self._by_id.pop(id_)
            for id_, one in [*self._by_id.items()]
            if id_ not in known or (one.node.paired and not known[id_].paired)
        ]
        seen = {one.node.id: one.seen for one in gone}
        for one in gone:
            self._goes_by(one, None)
            one.greeted = False
        for node_id, node in known.items():
            neighbour = self._by_id.get(node_id)
            if neighbour is None:
                self._by_id[node_id] = neighbour = Neighbour(node)
                neighbour.seen = seen.get(node_id, neighbour.seen)
            else:
                neighbour.node = node
        # What the person calls a paired daemon wins over what federation.toml says of another key.
        self._by_alias = {one.node.alias: one for one in sorted(self._by_id.values(), key=lambda one: one.node.paired)}
        return gone

    def all(self) -> list[Neighbour]:
        """Return all of them, by what they are called here."""
        return sorted(self._by_id.values(), key=lambda one: one.node.alias)

    def by_id(self, node_id: str) -> Neighbour | None:
        """Return the node with a key, by its node id."""
        return self._by_id.get(node_id)

    def has(self, neighbour: Neighbour) -> bool:
        """Tell whether a node was paired when it was looked at last."""
        return self._by_id.get(neighbour.node.id) is neighbour

    def holds(self, neighbour: Neighbour) -> bool:
        """Tell whether the key of a node is pinned at this very moment: whoever has waited asks when it goes on."""
        return self.has(neighbour) and self._pinned(neighbour.node.id) is not None

    def by_alias(self, alias: str) -> Neighbour | None:
        """Return the node that the person here calls so."""
        return self._by_alias.get(alias)

    def named(self, name: NodeName) -> Neighbour | None:
        """Return the node that goes by a name, and rightly so; what the person here calls it does not count."""
        return self._by_name.get(name)

    def by_name(self, name: str) -> Neighbour | None:
        """Return the node of a name: what the person here calls it comes before what a node calls itself."""
        mine = self.by_alias(name)
        named = self._by_name.get(NodeName(name))
        return mine or (named if named is not None and not named.refused else None)

    async def called(self, neighbour: Neighbour, name: NodeName) -> None:
        """Take the name that a node has proven to call itself.

        Raises:
            TaskRefused: ``INVALID_PAYLOAD``: it is another's, which is told loudly; nothing is exchanged with it then.
        """
        if neighbour.name == name and not neighbour.refused:
            return
        node = neighbour.node
        if name == self._own:
            self._refuse(neighbour, f"it calls itself {name}, which is the name of this node")
        if self._settings().misnamed(name, node.fingerprint):
            self._refuse(neighbour, f"it calls itself {name}, which federation.toml gives to another key")
        first = await self._names.bind(name, node.fingerprint)
        if first is not None:
            self._refuse(neighbour, f"it calls itself {name}, which is the name of the node with the key {first}")
        self._goes_by(neighbour, name)
        neighbour.refused = ""

    def _goes_by(self, neighbour: Neighbour, name: NodeName | None) -> None:
        """Note its name. What it told under another one is forgotten, so that it has one share of the table."""
        before, neighbour.name = neighbour.name, name
        if before is not None and self._by_name.get(before) is neighbour:
            del self._by_name[before]
        if name is not None:
            self._by_name[name] = neighbour
        if before is not None and before != name:
            self._unnamed(before)

    def _refuse(self, neighbour: Neighbour, why: str) -> None:
        if why not in neighbour.loud and len(neighbour.loud) < MAX_LOUD:
            neighbour.loud.add(why)
            log.error("a node goes by a name that is not its own, and gets nothing", peer=neighbour.node.alias, why=why)
        self._goes_by(neighbour, None)
        neighbour.refused, neighbour.greeted = why, False
        raise TaskRefused(FederationCode.INVALID_PAYLOAD, why, "name")
