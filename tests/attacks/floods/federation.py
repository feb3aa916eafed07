"""Floods of a paired node: envelopes that prove nothing, and registrations, heartbeats and tasks that are its own."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from nacl.signing import SigningKey

from attacks.flood import Flood, Target
from attacks.floods import bus
from attacks.kit.neighbour import Neighbour, identity_key
from sublet.daemon.rooms.node_carrier import KEYS
from sublet.messaging.ports.network import PeerQuery
from sublet.protocol.federation.addresses import NodeName, broadcast_room, federation_room, node_name
from sublet.protocol.federation.envelope import MAX_EVENTS, Envelope, ServerPage, read_server, seal, seal_server
from sublet.protocol.federation.events import AgentRegistered, FederationEvent, Heartbeat, TaskPayload, TaskRequest
from sublet.protocol.ids import fingerprint, node_id
from sublet.protocol.times import rfc3339_of

NODE: Final = node_name("mallory.local")
SPACE: Final = "default"
AT_ONCE: Final = 64
"""Questions that wait for an answer at one time."""
ANSWER_SECONDS: Final = 2.0
PAUSE: Final = 0.1
PROMPT: Final = "x" * 60_000


@dataclass
class Node:
    """A node that says what it likes, over the link of its daemon."""

    link: Neighbour
    key: SigningKey
    called: NodeName
    """What the daemon that is flooded calls itself."""

    def sealed(self, events: Sequence[FederationEvent], number: int, key: SigningKey | None = None) -> bytes:
        """Return an envelope as an honest node would sign it, or one signed by another ``key``."""
        tells = not isinstance(events[0], TaskRequest)
        envelope = Envelope(
            event_id=f"${number}-{time.monotonic_ns()}",
            room_id=broadcast_room(NODE) if tells else federation_room(SPACE, self.called),
            sender=f"@node:{NODE}" if tells else f"@human:{NODE}",
            events=tuple(events),
            origin=NODE,
            at_ms=int(time.time() * 1000),
            node=node_id(bytes(self.key.verify_key)),
            recipient=fingerprint(self.link.public),
        )
        return seal(envelope, key or self.key)


Says = Callable[[Node, int], bytes]


def _now() -> str:
    return rfc3339_of(time.time())


def nobodys(node: Node, number: int) -> bytes:
    """Say something large that another key has signed."""
    return node.sealed([_registered(f"a{one}") for one in range(MAX_EVENTS)], number, SigningKey(bytes(32)))


def registrations(node: Node, number: int) -> bytes:
    """Register agents that nobody has heard of."""
    return node.sealed([_registered(f"a{number}-{one}") for one in range(MAX_EVENTS)], number)


def heartbeats(node: Node, number: int) -> bytes:
    """Register some agents once, and say again and again that they are there."""
    if number == 1:
        return node.sealed([_registered(f"a{one}") for one in range(MAX_EVENTS)], number)
    beats = [Heartbeat(agent_id=f"a{one}", node_id=NODE, status="idle", timestamp=_now()) for one in range(MAX_EVENTS)]
    return node.sealed(beats, number)


def tasks(node: Node, number: int) -> bytes:
    """Ask for something of an agent that is not there."""
    asked = TaskRequest(
        request_id=f"r{number}-{time.monotonic_ns()}",
        from_agent=f"me@{NODE}",
        to_agent=f"nobody@{node.called}",
        task=TaskPayload(task_id=f"t{number}", prompt=PROMPT),
        timestamp=_now(),
    )
    return node.sealed([asked], number)


def _registered(agent: str) -> AgentRegistered:
    able = [f"c{one}" for one in range(8)]
    return AgentRegistered(agent_id=agent, node_id=NODE, runtime_type="claude", capabilities=able, timestamp=_now())


def flooding(says: Says, rounds: int | None = None) -> Callable[[Target], Awaitable[None]]:
    """Return the flood of a node that asks as much as it is answered; ``rounds`` ends it after so many questions."""

    async def run(target: Target) -> None:
        key = identity_key(target.peer_home)
        signing = SigningKey(key.private_bytes_raw())
        while True:
            link = await asyncio.to_thread(bus._link, target, key)
            try:
                await asyncio.to_thread(link.serve, KEYS["server"], _page(signing))
                page = await _answer(link, KEYS["server"], b"")
                if page is None:
                    await asyncio.sleep(PAUSE)
                    continue
                node = Node(link, signing, read_server(page, link.public, now=time.time()).name)
                if rounds is not None:
                    for number in range(1, rounds + 1):
                        await _answer(link, KEYS["event"], says(node, number))
                    return
                await _all(node, says)
            finally:
                await asyncio.to_thread(link.close)

    return run


async def _all(node: Node, says: Says) -> None:
    numbers = itertools.count(1)

    async def one_after_another() -> None:
        while True:
            raw = says(node, next(numbers))
            await _answer(node.link, KEYS["event"], raw)

    await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))


async def _answer(link: Neighbour, key: str, raw: bytes) -> bytes | None:
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[bytes | None] = loop.create_future()

    def settle(answer: bytes | None) -> None:
        if not answered.done():
            answered.set_result(answer)

    def heard(answer: bytes | None, replier: str = "") -> None:
        loop.call_soon_threadsafe(settle, answer)

    end = await asyncio.to_thread(link.ask, link.called, key, raw, ANSWER_SECONDS, heard)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await answered
    except TimeoutError:
        return None
    finally:
        end()


def _page(key: SigningKey) -> Callable[[PeerQuery], None]:
    """Return what answers who this node is."""

    def answer(query: PeerQuery) -> None:
        until = int((time.time() + 86_400) * 1000)
        query.reply(seal_server(ServerPage(NODE, bytes(key.verify_key), until, (SPACE,)), key))

    return answer


_DOOR = ["daemon.rooms.node_carrier:NodeCarrier._came", "federation.post:Post.open"]


def _flood(name: str, covers: Sequence[str], says: Says) -> Flood:
    return Flood(name=f"federation: {name}", who="peer", covers=[*_DOOR, *covers], run=flooding(says))


FLOODS = (
    _flood("envelopes that prove nothing", [], nobodys),
    _flood("registrations", ["federation.presence:Presence.take"], registrations),
    _flood("heartbeats", ["federation.presence:Presence.take"], heartbeats),
    _flood("tasks for nobody", ["federation.working:Working.take"], tasks),
)
