"""Who is there: our agents are told to other nodes, and theirs are kept in the table ("消息流程" 1 and 3).

Rules:

- A registration is answered to the newcomer alone, with one event an agent, and an answer is never answered.
- Only a node itself tells of its agents. What another says of them is a hint that moves nothing here.
- A heartbeat of all agents of a node is one envelope. It is written down nowhere.
- Who evicts an agent tells its node, which registers anew if it is there after all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import anyio
from anyio.abc import TaskGroup

from sublet.federation.limits import Rate
from sublet.federation.neighbours import FIRST_PAUSE_SECONDS, Neighbour, Neighbours
from sublet.federation.news import News, heartbeats, registrations
from sublet.federation.own_statuses import OwnStatuses
from sublet.federation.ports import Admission, Carrier, OwnAgent, Telling
from sublet.federation.post import Own, Post
from sublet.federation.settings import Settings
from sublet.federation.table import AgentEntry, AgentTable, TableFull
from sublet.protocol.errors import SubletError
from sublet.protocol.federation.addresses import AgentAddress, NodeName
from sublet.protocol.federation.envelope import Envelope
from sublet.protocol.federation.errors import FederationCode, TaskRefused
from sublet.protocol.federation.events import (
    SHUTDOWN,
    TIMED_OUT,
    AgentRegistered,
    AgentUnregistered,
    FederationEvent,
    Heartbeat,
    PresenceEvent,
    StatusUpdate,
)
from sublet.protocol.federation.retrying import ONCE
from sublet.protocol.text import clean_line
from sublet.protocol.times import rfc3339_of
from sublet.tasks import start_alone

AT_ONCE: Final = 64
"""Nodes that are spoken with at one time, of those that were reached last, and as many of those that were not: so who
says nothing holds up nobody else. With 1,000 nodes half of which fall silent at one moment, each waited for 5 s, the
others still hear of us within a third of the time after which an agent is gone.
"""
SHORTEST_LOOK_SECONDS: Final = 0.05
LEAVE_SECONDS: Final = 1.0
"""How long a stop waits until the others know."""
JITTER: Final = 0.1
"""By which part of an interval a heartbeat comes earlier, so that nodes do not speak all at one moment."""
WORDS_A_SECOND: Final = 0.2
WORDS_AT_ONCE: Final = 50.0
"""Events that tell of agents of one node which come and go, so that it pushes nobody's events out."""
ANSWERS_A_SECOND: Final = 0.2
ANSWERS_AT_ONCE: Final = 3.0
"""To registrations of one node, and to hints that ours are gone: each may take as many events as we have agents."""


class Presence:
    """See the module.

    Args:
        own: this node.
        settings: as they are now.
        agents: those of ours that are offered now, and whether each is at work.
        statuses: what they are at for others.
        neighbours: the other nodes.
        table: their agents.
        post: sends.
        carrier: knows who is reached.
        admission: asks policy.
        tell: the log of events.
        greeted: called with a node that knows of us now.
        look: called where a round has more to do.
        steady: seconds that never go back.
        wall: Unix seconds.
        chance: returns a number from 0 to 1.
    """

    def __init__(
        self,
        own: Own,
        settings: Callable[[], Settings],
        agents: Callable[[], Mapping[OwnAgent, bool]],
        statuses: OwnStatuses,
        neighbours: Neighbours,
        table: AgentTable,
        post: Post,
        carrier: Carrier,
        admission: Admission,
        tell: Telling,
        greeted: Callable[[Neighbour], None],
        look: Callable[[], None],
        steady: Callable[[], float],
        wall: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self._own = own
        self._settings = settings
        self._agents = agents
        self._statuses = statuses
        self._neighbours = neighbours
        self._table = table
        self._post = post
        self._carrier = carrier
        self._admission = admission
        self._tell = tell
        self._greeted = greeted
        self._look = look
        self._limits = {reached: anyio.CapacityLimiter(AT_ONCE) for reached in (True, False)}
        self._steady = steady
        self._wall = wall
        self._chance = chance
        self._words = Rate(WORDS_A_SECOND, WORDS_AT_ONCE, steady)
        self._answers = Rate(ANSWERS_A_SECOND, ANSWERS_AT_ONCE, steady)
        self._is_unsure = True
        self._agents_before: Mapping[OwnAgent, bool] = {}
        self._speaking: set[str] = set()
        """Node ids of those who are spoken with now."""
        self._oldest = steady()
        """No agent in the table was heard of before, by the steady clock: so long it is not walked through."""

    # Telling

    def begin(self) -> None:
        """Speak with nobody yet; whom an earlier ``serve`` spoke with when it failed is not spoken with any more."""
        self._speaking.clear()

    def unsure(self) -> None:
        """Note that something may have changed of which each node has to be told."""
        self._is_unsure = True

    def round(self, group: TaskGroup) -> float:
        """Start what is due; return in how many seconds there is more to do, unless something happens before.

        Args:
            group: runs what is started; ``look`` is called where one of it has ended.
        """
        settings = self._settings()
        if not settings.on:
            for neighbour in self._neighbours.all():
                neighbour.greeted, neighbour.told, neighbour.at = False, {}, {}
                if neighbour.name is not None:
                    self._table.remove_node(neighbour.name)
            return float(settings.heartbeat_interval_secs)
        now, dues = self._steady(), []
        agents = dict(self._agents())
        changed, self._is_unsure = self._is_unsure or agents != self._agents_before, False
        self._agents_before = agents
        for neighbour in self._neighbours.all():
            neighbour.unsure = neighbour.unsure or changed
            if neighbour.node.id in self._speaking:
                continue
            if not self._carrier.reaches(neighbour.node):
                # It is greeted as soon as it is reached again, which the carrier tells.
                neighbour.greeted, neighbour.due, neighbour.pause = False, now, FIRST_PAUSE_SECONDS
            elif self._is_due(neighbour, now):
                self._speaking.add(neighbour.node.id)
                start_alone(group, "what a node is told", self._tend, neighbour, settings)
            else:
                dues.append(neighbour.beat_at if neighbour.greeted else neighbour.due)
        if now >= self._oldest + settings.agent_timeout_secs:  # else nobody in the table can have been silent as long
            for entries in self._evicted(settings):
                start_alone(group, "what a node is told of its agents", self._tell_evicted, entries)
            oldest = self._table.oldest()
            self._oldest = now if oldest is None else oldest
        dues.append(self._oldest + settings.agent_timeout_secs)
        return max(SHORTEST_LOOK_SECONDS, min((due - now for due in dues), default=settings.heartbeat_interval_secs))

    def _is_due(self, neighbour: Neighbour, now: float) -> bool:
        if not neighbour.greeted:
            return now >= neighbour.due
        return neighbour.unsure or bool(neighbour.answer_to) or now >= neighbour.beat_at

    async def _tend(self, neighbour: Neighbour, settings: Settings) -> None:
        try:
            async with self._limits[neighbour.greeted]:
                if not await self._speak(neighbour, settings):
                    neighbour.lost(self._steady())
        except (TaskRefused, SubletError) as error:
            neighbour.refused = error.message
            neighbour.lost(self._steady())
        except Exception:
            neighbour.lost(self._steady())  # else it is tried again at once, and again
            raise
        finally:
            self._speaking.discard(neighbour.node.id)
            self._look()

    async def _speak(self, neighbour: Neighbour, settings: Settings) -> bool:
        """Greet a node, or tell it what is new, as far as it is due; return False where it was not reached."""
        was_new = not neighbour.greeted
        if was_new:
            if not await self._post.introduce(neighbour):
                return False
            neighbour.refused, neighbour.told, neighbour.at = "", {}, {}
        neighbour.unsure = False
        began = self._steady()  # from here, or a node that takes long would hear of us later each time
        beat = began >= neighbour.beat_at
        if not await self._told(neighbour, self._news(neighbour), beat=beat and not was_new):
            return False
        if neighbour.name is None:  # it has taken another's meanwhile
            return False
        neighbour.found()
        if beat or was_new:
            if self._statuses.recover():
                self.unsure()
            early = JITTER * self._chance()
            neighbour.beat_at = began + settings.heartbeat_interval_secs * (1 - early)
        if was_new:
            await self._tell("node", {"node": str(neighbour.name), "peer": neighbour.node.alias, "state": "reached"})
            self._greeted(neighbour)
        return True

    async def _told(self, neighbour: Neighbour, news: News, *, beat: bool) -> bool:
        """Send what is new, and a heartbeat; return whether the node has taken it."""
        answers, neighbour.answer_to = neighbour.answer_to, ""
        groups: list[tuple[Sequence[PresenceEvent], str]] = [
            (news.gone, ""),
            (news.registered if not answers else self._registrations(news.all), answers),
            (news.statuses, ""),
        ]
        if beat:
            groups.append((heartbeats(news, self._own.name, rfc3339_of(self._wall())), ""))
        for events, answer_to in groups:
            if not events:
                continue
            receipt = await self._post.send(neighbour, events, answers=answer_to, retry=ONCE)
            if receipt is None:
                return False
            if not receipt.accepted:
                assert receipt.refusal is not None, "it was refused"
                raise receipt.refusal
            if not receipt.known:
                neighbour.told, neighbour.at = {}, {}
                return False
        neighbour.told = dict(news.all)
        neighbour.at = news.at
        return True

    def _news(self, neighbour: Neighbour) -> News:
        """Return what a node does not know yet."""
        name = neighbour.name
        assert name is not None, "it was introduced"
        trusted = self._settings().trusts(name, neighbour.node.fingerprint)
        ours = {
            one.agent_id: (one, busy)
            for one, busy in self._agents().items()
            if self._admission.tells(neighbour.node, name, one.agent_id)
        }
        now = rfc3339_of(self._wall())
        agents = {agent_id: one for agent_id, (one, _) in ours.items()}
        at = {
            agent_id: self._statuses.told(agent_id, neighbour.node.id if trusted else "", busy=busy)
            for agent_id, (_, busy) in ours.items()
        }
        return News(
            all=agents,
            at=at,
            gone=[
                AgentUnregistered(agent_id=one, node_id=self._own.name, reason=SHUTDOWN, timestamp=now)
                for one in neighbour.told
                if one not in agents
            ],
            registered=self._registrations(
                {one: agent for one, agent in agents.items() if neighbour.told.get(one) != agent}
            ),
            statuses=[
                StatusUpdate(agent_id=one, node_id=self._own.name, status=said[0], current_task=said[1], timestamp=now)
                for one, said in at.items()
                if neighbour.at.get(one, ("idle", None)) != said
            ],
        )

    def _registrations(self, agents: Mapping[str, OwnAgent]) -> list[AgentRegistered]:
        return registrations(agents.values(), self._own.name, rfc3339_of(self._wall()))

    def _evicted(self, settings: Settings) -> list[list[AgentEntry]]:
        by_node: dict[NodeName, list[AgentEntry]] = {}
        for entry in self._table.evict(self._steady() - settings.agent_timeout_secs):
            by_node.setdefault(entry.address.node, []).append(entry)
        return list(by_node.values())

    async def _tell_evicted(self, entries: Sequence[AgentEntry]) -> None:
        """Tell whose agents were silent too long that they are gone here: if it is there, it registers them anew."""
        name = entries[0].address.node
        for entry in entries[:10]:
            await self._tell("agent", {"address": str(entry.address), "state": "gone", "reason": TIMED_OUT})
        neighbour = self._neighbours.named(name)
        if neighbour is None or not self._carrier.reaches(neighbour.node):
            return
        now = rfc3339_of(self._wall())
        gone: list[FederationEvent] = [
            AgentUnregistered(agent_id=one.address.agent_id, node_id=name, reason=TIMED_OUT, timestamp=now)
            for one in entries
        ]
        await self._post.send(neighbour, gone, retry=ONCE)

    async def leave(self) -> None:
        """Tell all that our agents go, for as long as a stop may take."""
        now = rfc3339_of(self._wall())

        async def tell(neighbour: Neighbour) -> None:
            gone: list[FederationEvent] = [
                AgentUnregistered(agent_id=one, node_id=self._own.name, reason=SHUTDOWN, timestamp=now)
                for one in neighbour.told
            ]
            if gone:
                with suppress(TaskRefused):
                    await self._post.send(neighbour, gone, retry=ONCE)

        with anyio.move_on_after(LEAVE_SECONDS, shield=True):
            async with anyio.create_task_group() as group:
                for neighbour in self._neighbours.all():
                    if neighbour.greeted:
                        group.start_soon(tell, neighbour)

    # Hearing

    async def take(self, neighbour: Neighbour, envelope: Envelope) -> bool:
        """Take what a node tells of agents; return False where it tells of some that it has not registered.

        Raises:
            TaskRefused: it tells of another node's agents as if they were its own, or policy does not let it.
        """
        kind = envelope.events[0].event_type
        if not await self._admission.hears(neighbour.node, envelope.origin, kind, self._settings().room.namespace):
            raise TaskRefused(FederationCode.AGENT_NOT_FOUND, "policy takes no such events of that node", "policy")
        known = True
        for event in envelope.events:
            if not self._neighbours.has(neighbour):  # it was forgotten while something below was waited for
                return known
            if isinstance(event, AgentUnregistered) and event.node_id != envelope.origin:
                self._hinted(neighbour, event)
                continue
            if not isinstance(event, AgentRegistered | AgentUnregistered | Heartbeat | StatusUpdate):
                raise TaskRefused(FederationCode.INVALID_PAYLOAD, "it is no event of presence", "batch")
            if event.node_id != envelope.origin:
                raise TaskRefused(
                    FederationCode.INVALID_PAYLOAD, "a node tells of its own agents, and of no others'", "owner"
                )
            known = await self._take_one(event, envelope.origin) and known
        newcomer = isinstance(envelope.events[0], AgentRegistered) and not envelope.answers
        if newcomer and self._answers.take(neighbour.node.id):
            # It is there after all: should the answer be lost, it is tried again soon.
            neighbour.answer_to, neighbour.due, neighbour.pause = envelope.event_id, self._steady(), FIRST_PAUSE_SECONDS
            self._look()
        return known

    async def _take_one(self, event: PresenceEvent, node: NodeName) -> bool:
        address = AgentAddress(event.agent_id, node)
        steady, wall = self._steady(), self._wall()
        match event:
            case AgentRegistered():
                try:
                    new = self._table.register(
                        address, event.runtime_type, event.capabilities, steady=steady, wall=wall
                    )
                except TableFull as error:
                    raise TaskRefused(FederationCode.AGENT_BUSY, str(error), "full") from None
                if new and self._words.take(node):
                    await self._tell("agent", {"address": str(address), "state": "registered"})
            case AgentUnregistered():
                if self._table.remove(address) and self._words.take(node):
                    reason = clean_line(event.reason or "", 200)
                    await self._tell("agent", {"address": str(address), "state": "gone", "reason": reason})
            case Heartbeat():
                return self._table.touch(node, event.agent_id, event.status, steady=steady, wall=wall)
            case StatusUpdate():
                return self._table.set_status(
                    node, event.agent_id, event.status, event.current_task, steady=steady, wall=wall
                )
        return True

    def _hinted(self, neighbour: Neighbour, event: AgentUnregistered) -> None:
        """Register anew with a node for which an agent of ours is gone; what it says of others' moves nothing."""
        mine = event.node_id == self._own.name and event.agent_id in neighbour.told
        if mine and self._answers.take(neighbour.node.id):  # else the next heartbeat is answered that it is unknown
            neighbour.told, neighbour.at, neighbour.unsure = {}, {}, True
            self._look()
