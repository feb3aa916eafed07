"""One node of federation in a process of its own, and one end of NATS: what ``federation.py`` measures.

``python _federation_node.py NODE http|bus NAME OWN_PORT OTHER_PORT DIRECTORY`` runs a node with its real carrier,
envelopes, table and journal, in which policy allows everything and agents answer at once. How much of a node is taken
is bounded in the product; here it is not, as the bound would be all that is measured. ``python _federation_node.py nats
serve|ask PORT`` answers or asks by NATS. Commands come as lines of JSON, each is answered by one.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import anyio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from sublet.app.node_http import NodeHttp
from sublet.daemon.federation.ledger import FederationLedger
from sublet.daemon.logs.logging import configure_logging
from sublet.daemon.rooms.node_carrier import NodeCarrier
from sublet.federation import post, working
from sublet.federation.carriers import Carriers
from sublet.federation.neighbours import Neighbour
from sublet.federation.node import Around, Federation
from sublet.federation.ports import KnownNode, OwnAgent
from sublet.federation.settings import Settings
from sublet.protocol.federation.events import AgentRegistered, Heartbeat, StatusUpdate
from sublet.protocol.times import rfc3339_of
from support.federation_world import World
from support.histories.in_process import PinnedLinks

UNBOUNDED = 1e12
READY_SECONDS = 60.0
BEATS_OF_ENVELOPE = 512
SUBJECT = "federation"
Command = dict[str, Any]


async def commands(answers: dict[str, Callable[[Command], Awaitable[Any]]]) -> None:
    """Answer commands until there are no more."""
    loop = asyncio.get_running_loop()
    print(json.dumps("ready"), flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        print(json.dumps(await answers[command["do"]](command)), flush=True)


async def paced(count: int, every: float, say: Callable[[], Awaitable[object]]) -> list[float]:
    """Return how long each of some questions took, in milliseconds, of which one begins every so many seconds."""
    took = []
    for _ in range(count):
        began = time.monotonic()
        await say()
        took.append((time.monotonic() - began) * 1000)
        await asyncio.sleep(max(0.0, began + every - time.monotonic()))
    return took


async def flood(count: int, workers: int, say: Callable[[], Awaitable[object]]) -> float:
    """Return how many questions a second are answered, where so many are under way at one time."""
    left = count
    began = time.monotonic()

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await say()

    async with anyio.create_task_group() as group:
        for _ in range(workers):
            group.start_soon(work)
    return count / (time.monotonic() - began)


class BenchedNode:
    """One of two nodes, ``ann`` and ``bob``.

    Args:
        carriage: ``http`` or ``bus``.
        name: of the two.
        own: its port.
        other: the other one's.
        directory: of its files.
    """

    def __init__(self, carriage: str, name: str, own: int, other: int, directory: Path) -> None:
        post.ENVELOPES_A_SECOND = post.ENVELOPES_AT_ONCE = UNBOUNDED  # type: ignore[misc]
        post.BYTES_A_SECOND = post.BYTES_AT_ONCE = UNBOUNDED  # type: ignore[misc]
        working.TASKS_A_SECOND = working.TASKS_AT_ONCE = UNBOUNDED  # type: ignore[misc]
        both = {one: World().add(one) for one in ("ann", "bob")}
        self.me, self.they = both.pop(name), both.popitem()[1]
        http: dict[str, Any] = {"enabled": carriage == "http", "listen": f"127.0.0.1:{own}"}
        known = self.they.known()
        url = f"https://127.0.0.1:{other}"
        peer = {"node_id": self.they.own.name, "url": url, "fingerprint": known.fingerprint}
        self.settings = Settings.model_validate({"http": http, "peers": [peer]})
        self.http = NodeHttp(self.me.own.key, directory / "keys", lambda: self.settings, list)
        self.bus = NodeCarrier()
        self._bus_of = (carriage, own, other, directory, known)
        self.ledger = FederationLedger(directory / "federation.sqlite3")
        self.federation = Federation(
            Around(
                own=self.me.own,
                settings=lambda: self.settings,
                known=self.http.listed.known if carriage == "http" else lambda: [known],
                pinned=self.http.listed.pinned if carriage == "http" else {known.id: known}.get,
                agents=lambda: {OwnAgent("worker-1", "other", ("test",)): False},
                names=self.ledger,
                carrier=Carriers(self.bus, self.http.caller),
                admission=self.me,
                work=self.me,
                ledger=self.ledger,
                tell=self._tell,
            )
        )
        self.http.begin(self.me.own, self.federation.receive, self.federation.paired)
        self.bus.begin(self.federation.receive, self.federation.look)
        self.me.federation = self.federation

    async def _tell(self, what: str, data: object) -> None:
        return

    async def run(self) -> None:
        """Run until there are no more commands."""
        async with AsyncExitStack() as stack, anyio.create_task_group() as group:
            await self.ledger.open()
            stack.push_async_callback(self.ledger.aclose)
            stack.push_async_callback(self.http.aclose)
            with ExitStack() as links:
                if self._bus_of[0] == "bus":
                    links.enter_context(self.bus.attached(self._links(links)))
                for serve in (self.http.serve, self.bus.serve, self.federation.serve):
                    group.start_soon(serve)
                await commands(
                    {
                        "meet": self._meet,
                        "latency": lambda said: paced(said["count"], said["every"], self._say),
                        "rate": lambda said: flood(said["count"], said["workers"], self._say),
                        "tasks": lambda said: flood(said["count"], said["workers"], self._task),
                        "beats": self._beats,
                        "spent": _spent,
                    }
                )
                group.cancel_scope.cancel()

    def _links(self, stack: ExitStack) -> PinnedLinks:
        _, own, other, directory, known = self._bus_of
        key = Ed25519PrivateKey.from_private_bytes(bytes(self.me.own.key))
        calls = {known.public_key: ("127.0.0.1", other)} if self.me.own.node_id < known.id else {}
        there = [known.public_key]
        made = PinnedLinks(key, directory / "bus", ("127.0.0.1", own), calls, there, there)
        stack.callback(made.close)
        return made

    @property
    def _neighbour(self) -> Neighbour:
        (found,) = self.federation.neighbours.all()
        return found

    async def _meet(self, _: Command) -> bool:
        with anyio.fail_after(READY_SECONDS):
            while not (self.federation.neighbours.all() and self._neighbour.greeted and self.federation.table.all()):
                await anyio.sleep(0.05)
        return True

    async def _say(self) -> None:
        event = StatusUpdate(
            agent_id="worker-1", node_id=self.me.own.name, status="idle", current_task=None, timestamp=_now()
        )
        receipt = await self.federation._post.send(self._neighbour, [event])
        assert receipt is not None, self.http.why_not(self.settings.peers[0])
        assert receipt.accepted, receipt.refusal

    async def _task(self) -> None:
        done = await self.me.result(f"worker-1@{self.they.own.name}", "it")
        assert done.success, done

    async def _beats(self, said: Command) -> float:
        """Return how many agents' heartbeats a second are taken, which come in one envelope for many."""
        names = [f"a{number}" for number in range(BEATS_OF_ENVELOPE)]
        agents = [
            AgentRegistered(
                agent_id=one, node_id=self.me.own.name, runtime_type="other", capabilities=[], timestamp=_now()
            )
            for one in names
        ]
        await self.federation._post.send(self._neighbour, agents)
        beats = [Heartbeat(agent_id=one, node_id=self.me.own.name, status="idle", timestamp=_now()) for one in names]

        async def say() -> None:
            receipt = await self.federation._post.send(self._neighbour, beats)
            assert receipt is not None
            assert receipt.accepted

        return await flood(said["count"], 1, say) * len(beats)


async def _spent(_: Command) -> float:
    """Return the processor time that this process has had, in seconds."""
    return time.process_time()


def _now() -> str:
    return rfc3339_of(time.time())


async def nats(role: str, port: int) -> None:
    """Answer or ask by NATS, whose server keeps and proves nothing."""
    library: Any = importlib.import_module("nats")
    connection = await library.connect(f"nats://127.0.0.1:{port}")

    async def answer(message: Any) -> None:
        await message.respond(b'{"accepted": true, "event_id": "", "known": true}')

    if role == "serve":
        await connection.subscribe(SUBJECT, cb=answer)
        await connection.flush()

    async def ask(size: int) -> None:
        await connection.request(SUBJECT, bytes(size), timeout=5)

    await commands(
        {
            "latency": lambda said: paced(said["count"], said["every"], lambda: ask(said["bytes"])),
            "rate": lambda said: flood(said["count"], said["workers"], lambda: ask(said["bytes"])),
        }
    )
    await connection.close()


def known_bytes() -> int:
    """Return how many bytes the envelope has that is measured."""
    ann, bob = World().add("ann"), World().add("bob")
    node: KnownNode = bob.known()
    event = StatusUpdate(agent_id="worker-1", node_id=ann.own.name, status="idle", current_task=None, timestamp=_now())
    neighbour = Neighbour(node, bob.own.name)
    return len(ann.federation._post._sealed(neighbour, [event], "node", "", post.NOBODY, to_all=False))


if __name__ == "__main__":
    configure_logging("warning")  # on stderr
    if sys.argv[1] == "nats":
        asyncio.run(nats(sys.argv[2], int(sys.argv[3])))
    else:
        _, _, kind, whose, mine, theirs, place = sys.argv
        asyncio.run(BenchedNode(kind, whose, int(mine), int(theirs), Path(place)).run())
