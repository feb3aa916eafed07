"""Federation with 100,000 agents on 1,000 nodes: the table, heartbeats, search by capability, and many whole nodes.

All figures are of the product's own table and protocol code, and of processor time, since nothing here waits for a disk
or a network. The last rows run whole nodes on a simulated network by a virtual clock (``--nodes`` at most); its figures
in bytes and virtual seconds are the same in each run of one seed.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import anyio
from nacl.signing import SigningKey

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from _report import Row, add_options, show
from sublet.federation.node import MAX_COMPARED, MAX_COMPARED_OF_NODE, Around, Federation
from sublet.federation.ports import AdmittedTask, KnownNode, OwnAgent, Said, What
from sublet.federation.post import Own, receipt_bytes
from sublet.federation.settings import Settings
from sublet.federation.table import MAX_EVICTED, AgentTable
from sublet.protocol.canonical import JsonValue
from sublet.protocol.federation.addresses import AgentAddress, NodeName, federation_room, node_name
from sublet.protocol.federation.envelope import Envelope, ServerPage, seal, seal_server
from sublet.protocol.federation.events import AgentRegistered, FederationEvent, Heartbeat, TaskResult
from sublet.protocol.ids import fingerprint, node_id
from support.federation_simulation import SimulatedNet, Story, story
from support.federation_world import Ledger
from support.virtual_time import run_virtual

NODES, OF_NODE = 1_000, 100
AGENTS = NODES * OF_NODE
PERIOD = 30
LOOKUPS = 200_000
SIZES = (10, 20, 40)
LOSS, AGENTS_SIMULATED = 0.01, 2
WALL = 1_800_000_000.0
WHEN = "2026-02-08T10:30:00Z"
GOAL_LOOKUP, GOAL_PASS, GOAL_MIB, GOAL_SHARE, GOAL_SEARCH = 2.0, 50.0, 100.0, 20.0, 1.0


def resident_mib() -> float:
    """Return the resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def seconds_of(work: Callable[[], object]) -> float:
    """Return the processor time that something takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def named(number: int) -> NodeName:
    return node_name(f"node-{number}.test")


def abilities(number: int) -> list[str]:
    """Return what an agent can do: texts of its own, as what comes off the wire is."""
    return ["".join(("test",)), f"cap-{number % 20}", f"tool-{number % 97}"]


def table_rows() -> list[Row]:
    """Return the figures of the table alone."""
    gc.collect()
    before, table = resident_mib(), AgentTable()
    for node in range(NODES):
        name = named(node)
        for agent in range(OF_NODE):
            address = AgentAddress(f"worker-{agent}-{node}", name)
            table.register(address, "".join(("cla", "ude")), abilities(agent + node), steady=1.0, wall=WALL)
    used = resident_mib() - before
    addresses = [AgentAddress(f"worker-{at % OF_NODE}-{at % NODES}", named(at % NODES)) for at in range(10_000)]

    def look_up() -> None:
        for _ in range(LOOKUPS // len(addresses)):
            for address in addresses:
                table.find(address)

    def look_up_ids() -> None:
        for _ in range(LOOKUPS // len(addresses)):
            for address in addresses:
                table.named(address.agent_id)

    def beats() -> None:
        for node in range(NODES):
            for agent in range(OF_NODE):
                table.touch(named_before[node], f"worker-{agent}-{node}", "idle", steady=2.0, wall=WALL)

    named_before = [named(node) for node in range(NODES)]
    by_address, by_id = (seconds_of(work) / LOOKUPS * 1e6 for work in (look_up, look_up_ids))
    beat = seconds_of(beats) / AGENTS * 1e6
    idle = seconds_of(lambda: table.evict(1.5)) * 1000
    search = seconds_of(lambda: list(islice(table.able("test", MAX_COMPARED_OF_NODE), MAX_COMPARED))) * 1000
    passes = list[float]()
    while len(table):
        passes.append(seconds_of(lambda: table.evict(3.0)) * 1000)
    return [
        Row("table: memory", used, "MiB", f"{AGENTS:,} agents", f"≤ {GOAL_MIB:.0f} MiB", used <= GOAL_MIB),
        Row("table: an agent by its address", by_address, "µs", "", f"≤ {GOAL_LOOKUP:.0f} µs", by_address <= 2.0),
        Row("table: agents by a bare id", by_id, "µs"),
        Row("table: a heartbeat of one agent", beat, "µs"),
        Row("table: a pass in which nobody is silent", idle, "ms", "", f"≤ {GOAL_PASS:.0f} ms", idle <= GOAL_PASS),
        Row(
            "table: the longest pass when all are silent at once",
            max(passes),
            "ms",
            f"{len(passes)} passes of {MAX_EVICTED:,} agents",
            f"≤ {GOAL_PASS:.0f} ms",
            max(passes) <= GOAL_PASS,
        ),
        Row("table: 1,000 of the agents with one capability", search, "ms"),
    ]


class Crowd:
    """One real node, and what 999 others say to it, which was signed before."""

    def __init__(self) -> None:
        keys = [SigningKey(number.to_bytes(32, "big")) for number in range(1, NODES + 1)]
        publics = [bytes(key.verify_key) for key in keys]
        self.owns = [
            Own(named(at), key, node_id(public), fingerprint(public))
            for at, (key, public) in enumerate(zip(keys, publics, strict=True))
        ]
        self.known = {
            own.node_id: KnownNode(own.node_id, public, own.fingerprint, f"n{at}")
            for at, (own, public) in enumerate(zip(self.owns, publics, strict=True))
            if at
        }
        until = int((WALL + 86_400) * 1000)
        self.pages = {
            own.node_id: seal_server(ServerPage(own.name, public, until, ("default",)), own.key)
            for own, public in zip(self.owns, publics, strict=True)
        }
        self.offered = {OwnAgent(f"worker-{at}-0", "claude", tuple(abilities(at))): False for at in range(OF_NODE)}
        self.settings = Settings()
        self.ledger = Ledger()
        self.asked = 0

    def make(self) -> Federation:
        return Federation(
            Around(
                own=self.owns[0],
                settings=lambda: self.settings,
                known=lambda: self.known.values(),
                pinned=self.known.get,
                agents=lambda: self.offered,
                names=self.ledger,
                carrier=self,
                admission=self,
                work=self,
                ledger=self.ledger,
                tell=self.tell,
                steady=anyio.current_time,
                wall=lambda: WALL + anyio.current_time(),
            )
        )

    def says(self, number: int, at: float, events: Sequence[FederationEvent], answers: str = "") -> bytes:
        own, to = self.owns[number], self.owns[0]
        return seal(
            Envelope(
                event_id=f"${number}-{at}",
                room_id=federation_room("default", to.name),
                sender=f"@node:{own.name}",
                events=tuple(events),
                origin=own.name,
                at_ms=int((WALL + at) * 1000),
                node=own.node_id,
                recipient=to.fingerprint,
                answers=answers,
            ),
            own.key,
        )

    def registrations(self, number: int) -> list[FederationEvent]:
        return [
            AgentRegistered(
                agent_id=f"worker-{agent}-{number}",
                node_id=named(number),
                runtime_type="claude",
                capabilities=abilities(agent + number),
                timestamp=WHEN,
            )
            for agent in range(OF_NODE)
        ]

    def beats(self, number: int) -> list[FederationEvent]:
        return [
            Heartbeat(agent_id=f"worker-{agent}-{number}", node_id=named(number), status="idle", timestamp=WHEN)
            for agent in range(OF_NODE)
        ]

    async def ask(self, node: KnownNode, what: What, payload: bytes) -> bytes | None:
        self.asked += 1
        await anyio.sleep(0.02)
        return self.pages[node.id] if what == "server" else receipt_bytes("$1")

    def reaches(self, node: KnownNode) -> bool:
        return True

    async def hears(self, node: KnownNode, name: NodeName, kind: str, namespace: str) -> bool:
        return True

    def tells(self, node: KnownNode, name: NodeName, agent_id: str) -> bool:
        return True

    async def task(self, task: AdmittedTask, namespace: str) -> None: ...

    async def run(self, task: AdmittedTask) -> AsyncGenerator[Said | TaskResult, None]:
        yield TaskResult(success=True, output="", exit_code=0)

    async def tell(self, what: Literal["node", "agent", "task", "message"], data: Mapping[str, JsonValue]) -> None: ...


async def heartbeat_rows() -> list[Row]:
    """Return what heartbeats of all agents cost one node, and what the search for the best of them does."""
    crowd = Crowd()
    federation, others = crowd.make(), range(1, NODES)
    first = {number: crowd.says(number, 20, crowd.registrations(number), "$greeting") for number in others}
    beats = {number: crowd.says(number, 60, crowd.beats(number)) for number in others}
    size = sum(map(len, beats.values())) / len(beats)
    async with anyio.create_task_group() as group:
        group.start_soon(federation.serve)
        await anyio.sleep(20)
        for number, raw in first.items():
            await federation.receive("event", raw, crowd.owns[number].node_id)
        assert len(federation.table) == AGENTS - OF_NODE
        await anyio.sleep(40)
        asked, began = crowd.asked, time.process_time()
        await anyio.sleep(2 * PERIOD)
        sending = (time.process_time() - began) / (2 * PERIOD) * 100
        sent = (crowd.asked - asked) / (2 * PERIOD) * PERIOD
        began = time.process_time()
        for number, raw in beats.items():
            await federation.receive("event", raw, crowd.owns[number].node_id)
        hearing = (time.process_time() - began) / PERIOD * 100
        assert min(entry.seen for entry in federation.table.all()) >= 60 + 2 * PERIOD
        rounds = 20
        busiest = seconds_of(lambda: [federation._presence.round(group) for _ in range(rounds)]) / rounds * 1000
        looks = 50
        best = seconds_of(lambda: [federation.best("test", lambda *_: True) for _ in range(looks)]) / looks * 1000
        assert federation.best("cap-3", lambda *_: True) is not None
        group.cancel_scope.cancel()
    return [
        Row(
            f"heartbeats of {AGENTS:,} agents heard, one core",
            hearing,
            "%",
            f"{NODES - 1} envelopes of {size / 1024:.1f} KiB in {PERIOD} s",
            f"< {GOAL_SHARE:.0f} %",
            hearing < GOAL_SHARE,
        ),
        Row(
            f"heartbeats of {OF_NODE} agents told to {NODES - 1} nodes, one core",
            sending,
            "%",
            f"{sent:,.0f} envelopes in {PERIOD} s",
            f"< {GOAL_SHARE:.0f} %",
            sending < GOAL_SHARE,
        ),
        Row("a look at what is due, 999 nodes", busiest, "ms"),
        Row("the best agent with a capability", best, "ms", "", f"≤ {GOAL_SEARCH:.0f} ms", best <= GOAL_SEARCH),
    ]


def simulation_rows(most: int) -> list[Row]:
    """Return what many whole nodes on one network come to, of some sizes up to ``most``."""
    rows = list[Row]()
    per_other = 0.0
    for count in sorted({*(one for one in SIZES if one < most), most}):

        async def main(count: int = count) -> Story:
            net = SimulatedNet(count, agents=AGENTS_SIMULATED, loss=LOSS, routers=4)
            return await story(net)

        began = time.process_time()
        told = run_virtual(main)
        took = time.process_time() - began
        per_other = told.sent / (count - 1)
        times = (
            f"joined {told.joined:.0f}, left {told.left:.0f}, died {told.died:.0f}, parted {told.parted:.0f}, "
            f"healed {told.healed:.0f}, back {told.came_back:.0f} s"
        )
        rows += [
            Row(f"{count} nodes: a node sends", told.sent, "B/s", f"{per_other:.1f} B/s for each other node"),
            Row(f"{count} nodes: routers to routers", told.between_routers / 1024, "KiB/s", "4 routers, all nodes"),
            Row(f"{count} nodes: all views right again", told.healed, "s", f"{times}; {took:.0f} s of processor time"),
        ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=SIZES[-1], help="of the largest simulation; 0 for none")
    add_options(parser)
    options = parser.parse_args()
    rows = table_rows()
    rows += run_virtual(heartbeat_rows)
    if options.nodes:
        rows += simulation_rows(options.nodes)
    show("federation_scale", rows, options, Path(__file__).resolve().parent.parent / "docs" / "scale.md")


if __name__ == "__main__":
    main()
