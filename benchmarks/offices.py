"""200 Computers and 50 Agents of 50 offices at once on one daemon, beside the published server of `a2c-smcp`.

    python benchmarks/offices.py [--only TEXT] [--rounds 3] [--quick] [--json] [--markdown]

Both serve on loopback all the time, and are called in turns in the same run: one Agent alone, then all Agents at once,
each call after the one before. The clients are the same for both: raw ones of this benchmark, in this process. Our
server asks policy before each call and has it in the audit log, on disk, before a tool is called; the other does
neither, which is why ``get_tools``, a plain relay, is measured beside ``tool_call``. Its own environment is
`.cache/a2c-clients` (`scripts/setup-clients`), with what its requirements install; without it our own figures are shown
alone.

Floods: a process of its own, on one processor and last in line for it, floods our server as a member or as a stranger,
in every second of short spans in which all other Agents call now and then; what their calls take in a span with the
flood is compared with what they take in the two beside it, and the middle ratio counts. Walls: a member asks 2,000
times about an office of others, and 2,000 times about one that does not exist, in a random order of a fixed seed; a
rank test (Mann-Whitney) tells whether the times differ. Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import random
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from _office_members import Member, Seat, all_joined
from _report import Row, add_options, show
from sublet.daemon.api.offices import (
    CREATE_OFFICE,
    CREATE_OFFICE_TOKEN,
    LIST_OFFICES,
    CreateOffice,
    CreateOfficeToken,
)
from sublet.daemon.api.operation import Nothing
from sublet.protocol.offices.names import Role

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.daemons import Daemon
from support.leases import control

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".cache" / "a2c-clients" / "bin" / "python"
SERVER = ROOT / "tests" / "clients" / "a2c" / "server.py"
FLOODER = Path(__file__).with_name("_office_flooder.py")
EVENTS = ("client:tool_call", "client:get_tools")
SLOWED = 1.1
THINK_SECONDS = 0.2
"""Between two calls of an Agent while a flood is looked at."""
SPAN_SECONDS = 2.0
SPANS = 6
"""With a flood, each between two without."""
SETTLE_SECONDS = 1.0
"""After a flood has begun: what it may do at once is over then, as it is in any flood that lasts."""
TRIES = 2_000
MAX_Z = 4.5
"""Of a rank test: two that are alike differ so much once in 150,000 runs."""
FLOODS = {
    "calls": "an Agent calls without end, 64 at once",
    "json": "an Agent sends what takes long to parse",
    "notices": "a Computer tells of changes without end",
    "strangers": "strangers connect without end",
}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is done."""

    offices: int = 50
    computers: int = 4
    alone: int = 300
    """Calls of one Agent in each round."""
    at_once: int = 20
    """Calls of each Agent in each round."""
    spans: int = SPANS
    tries: int = TRIES


@dataclass(slots=True)
class Server:
    """A server with all its members.

    Args:
        name: for people.
        pid: of its process.
        seats: who is to join: of each office its Agent first.
        spare: a seat for whoever floods, of an office of its own with four Computers, and of a Computer there.
    """

    name: str
    pid: int
    seats: list[list[Seat]]
    members: list[list[Member]] = field(default_factory=list)
    join_seconds: float = 0
    grown: int = 0
    taken: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    @property
    def memory(self) -> int:
        """Bytes of memory that its process holds."""
        return int(psutil.Process(self.pid).memory_info().rss)

    @property
    def agents(self) -> list[Member]:
        """The Agents of all offices."""
        return [office[0] for office in self.members]

    async def join(self) -> None:
        """Let all join, and note how long it takes and what memory."""
        # What is loaded for the first of them is no member's.
        first = await Member.joined(self.seats[0][0])
        await first.leaves()
        await asyncio.sleep(SETTLE_SECONDS)
        before, begun = self.memory, time.perf_counter()
        members = await all_joined([seat for office in self.seats for seat in office])
        self.join_seconds, self.grown = time.perf_counter() - begun, self.memory - before
        size = len(self.seats[0])
        self.members = [members[at : at + size] for at in range(0, len(members), size)]

    async def leave(self) -> None:
        """End all connections."""
        await asyncio.gather(*(member.leaves() for office in self.members for member in office))


async def main(options: argparse.Namespace) -> list[Row]:
    """Run what was chosen."""
    size = Size(offices=4, computers=2, alone=20, at_once=4, spans=1, tries=100) if options.quick else Size()
    rows: list[Row] = []
    chosen = [part for part in ("calls", "floods", "walls") if options.only in part]
    with tempfile.TemporaryDirectory(prefix="ofc-") as scratch:
        async with ours(Path(scratch), size) as daemon:
            await daemon.join()
            if "calls" in chosen:
                with theirs(size) as other:
                    servers = [daemon] if other is None else [daemon, other]
                    rows += await beside(servers, size, 1 if options.quick else options.rounds)
            if "floods" in chosen:
                for kind in FLOODS:
                    rows.append(await flooded(daemon, kind, size))
            if "walls" in chosen:
                rows += await walls(daemon, size)
            await daemon.leave()
    return rows


@asynccontextmanager
async def ours(scratch: Path, size: Size) -> AsyncIterator[Server]:
    """Run a daemon with offices and tokens, the last office for whoever floods."""
    daemon = Daemon(scratch / "home")
    await asyncio.to_thread(daemon.up)
    try:
        async with control(daemon) as client:
            seats: list[list[Seat]] = []
            for number in range(size.offices + 1):
                office = await client.call(CREATE_OFFICE, CreateOffice(name=f"o{number}"))
                held: list[Seat] = []
                for name in ("a", *(f"c{one}" for one in range(size.computers)), "flooder"):
                    role = Role.AGENT if name == "a" else Role.COMPUTER
                    asking = CreateOfficeToken(office=office.name, role=role, name=name)
                    made = await client.call(CREATE_OFFICE_TOKEN, asking)
                    held.append(Seat(made.url, made.token, office.office_id, str(role), name))
                seats.append(held)
            assert daemon.pid is not None
            yield Server("sublet", daemon.pid, seats)
            assert len((await client.call(LIST_OFFICES, Nothing())).offices) == size.offices + 1
    finally:
        await asyncio.to_thread(daemon.down)


@contextmanager
def theirs(size: Size) -> Iterator[Server | None]:
    """Run the published server, where it is installed."""
    if not PYTHON.exists():
        print("the published server is not measured: scripts/setup-clients installs it", file=sys.stderr)
        yield None
        return
    token = secrets.token_urlsafe(32)
    with subprocess.Popen(
        [str(PYTHON), str(SERVER), token], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = next(line.strip() for line in process.stdout if line.startswith("http://"))  # its log comes as well
            # Its names are those of all offices together.
            yield Server(
                "a2c-smcp 0.4.2",
                process.pid,
                [
                    [
                        Seat(url, token, f"o{number}", "agent" if name == "a" else "computer", f"{name}-{number}")
                        for name in ("a", *(f"c{one}" for one in range(size.computers)))
                    ]
                    for number in range(size.offices)
                ],
            )
        finally:
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()


# calls


async def beside(servers: Sequence[Server], size: Size, rounds: int) -> list[Row]:
    """Call tools of both servers in turns."""
    for server in servers[1:]:
        await server.join()
    for server in servers:
        for event in EVENTS:  # what the first of a kind loads is not measured
            await server.agents[0].calls(computer_of(server.members[0]), event)
    for number in range(rounds):
        for server in servers if number % 2 == 0 else reversed(servers):
            for event in EVENTS:
                agent, computer = server.agents[0], computer_of(server.members[0])
                alone = [await agent.calls(computer, event) for _ in range(size.alone)]
                server.taken.setdefault((event, "alone"), []).extend(alone)
                offices = server.members[: size.offices]
                many = await asyncio.gather(*(several(office, event, size.at_once) for office in offices))
                server.taken.setdefault((event, "all Agents at once"), []).extend(one for few in many for one in few)
    rows = memory(servers)
    for server in servers[1:]:
        await server.leave()
    for event in EVENTS:
        for how in ("alone", "all Agents at once"):
            for share, name in ((0.5, "p50"), (0.99, "p99")):
                values = [at(server.taken[event, how], share) * 1e3 for server in servers]
                peer, ratio = told(servers, values)
                met = None if ratio is None else ratio <= 1
                what = f"{event.removeprefix('client:')}, {how}, {name}"
                rows.append(Row(what, values[0], "ms", "", "no slower" if servers[1:] else "", met, peer, ratio))
    return rows


def memory(servers: Sequence[Server]) -> list[Row]:
    """Return what a member costs, and how long it takes until all have joined."""
    count = sum(map(len, servers[0].seats))
    each = [server.grown / sum(map(len, server.seats)) / 1024 for server in servers]
    joins = [server.join_seconds / sum(map(len, server.seats)) * 1e3 for server in servers]
    detail = f"{count} of {len(servers[0].seats)} offices; {servers[0].memory / (1 << 20):.0f} MiB in all"
    peers = [told(servers, values) for values in (each, joins)]
    if servers[1:]:
        peers[0] = (f"{peers[0][0]}, {servers[1].memory / (1 << 20):.0f} MiB in all", peers[0][1])
    return [
        Row("memory of a member", each[0], "KiB", detail, peer=peers[0][0], ratio=peers[0][1]),
        Row("a member joins", joins[0], "ms", "16 at a time", peer=peers[1][0], ratio=peers[1][1]),
    ]


def told(servers: Sequence[Server], values: Sequence[float]) -> tuple[str, float | None]:
    """Return what a peer took, and our figure by its."""
    if len(servers) < 2:
        return "", None
    return f"{servers[1].name} {values[1]:.1f}", values[0] / values[1] if values[1] else None


def computer_of(office: Sequence[Member]) -> str:
    """Return the name of the first Computer of an office."""
    return office[1].seat.name


async def several(office: Sequence[Member], event: str, count: int) -> list[float]:
    """Return how long calls of one Agent take, each to another of its Computers."""
    computers = [member.seat.name for member in office[1:]]
    return [await office[0].calls(computers[number % len(computers)], event) for number in range(count)]


def at(values: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` of all are."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# floods


async def flooded(server: Server, kind: str, size: Size) -> Row:
    """Compare what calls of all but one office take without a flood of that one and with it."""
    spans: list[list[float]] = []
    last = server.members[-1]
    # Whoever floods sits in the last office, and takes the place of its member there.
    place = -1 if kind == "notices" else 0
    seat = last[place].seat
    for number in range(2 * size.spans + 1):
        with flooding(kind, seat) if number % 2 else contextlib.nullcontext():
            await asyncio.sleep(SETTLE_SECONDS)
            spans.append(await now_and_then(server.members[:-1], SPAN_SECONDS))
    if kind != "strangers":
        last[place] = await Member.joined(seat)
    middles = list(map(statistics.median, spans))
    # Each span with the flood is compared with those beside it: a machine that others use is slower at times.
    ratio = statistics.median(
        2 * middles[one] / (middles[one - 1] + middles[one + 1]) for one in range(1, len(middles), 2)
    )
    calm, flood = ([one for span in spans[first::2] for one in span] for first in (0, 1))
    detail = f"p99 {at(calm, 0.99) * 1e3:.1f} and {at(flood, 0.99) * 1e3:.1f} ms, {len(calm) + len(flood)} calls"
    what = f"{FLOODS[kind]}: calls of others, p50"
    peer = f"without it {statistics.median(calm) * 1e3:.2f} ms"
    return Row(what, statistics.median(flood) * 1e3, "ms", detail, f"≤ {SLOWED}", ratio <= SLOWED, peer, ratio)


async def now_and_then(offices: Sequence[Sequence[Member]], seconds: float) -> list[float]:
    """Have each Agent call now and then for so long, and return what each call took."""
    until, order = time.perf_counter() + seconds, random.Random(4)

    async def one(office: Sequence[Member], begins: float) -> list[float]:
        taken = []
        await asyncio.sleep(begins)
        while time.perf_counter() < until:
            taken.append(await office[0].calls(computer_of(office)))
            await asyncio.sleep(THINK_SECONDS)
        return taken

    found = await asyncio.gather(*(one(office, order.uniform(0, THINK_SECONDS)) for office in offices))
    return [took for few in found for took in few]


@contextmanager
def flooding(kind: str, seat: Seat) -> Iterator[None]:
    """Have a process of its own flood."""
    words = [kind, seat.url, seat.token, seat.office_id, seat.role, seat.name]
    with subprocess.Popen([sys.executable, str(FLOODER), *words], stdout=subprocess.PIPE, text=True) as process:
        processors = os.sched_getaffinity(0)
        if len(processors) > 1:  # whoever floods has a machine of its own
            os.sched_setaffinity(process.pid, {min(processors)})
        os.setpriority(os.PRIO_PROCESS, process.pid, 19)
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "floods\n", "the flood has not begun"
            yield
            assert process.poll() is None, "the flood has ended by itself"
        finally:
            process.kill()


# walls

Try = Callable[[str], Awaitable[object]]


async def walls(server: Server, size: Size) -> list[Row]:
    """Tell whether an office of others and one that does not exist can be told apart by time."""
    agent, other = server.agents[0], server.members[1][0].seat.office_id
    computer = server.members[0][1]
    there = {"o": other, "n": str(uuid.UUID(int=random.Random(18).getrandbits(128), version=4))}

    async def lists(office: str) -> object:
        return await agent.asks("server:list_room", {"agent": "a", "req_id": "r", "office_id": there[office]})

    async def joins(office: str) -> object:
        asking = {"role": "computer", "name": computer.seat.name, "office_id": there[office]}
        return await computer.asks("server:join_office", asking)

    async def leaves(office: str) -> object:
        return await computer.asks("server:leave_office", {"office_id": there[office]})

    questions: dict[str, Try] = {"who is there": lists, "may I join": joins, "I leave": leaves}
    return [await told_apart(what, ask, size.tries) for what, ask in questions.items()]


async def told_apart(what: str, ask: Try, tries: int) -> Row:
    """Ask about both in turns, and compare what is answered and how long it takes."""
    order = ["o", "n"] * tries
    random.Random(18).shuffle(order)
    taken: dict[str, list[float]] = {"o": [], "n": []}
    said: dict[str, set[str]] = {"o": set(), "n": set()}
    for one in order:
        begun = time.perf_counter()
        answer = await ask(one)
        taken[one].append(time.perf_counter() - begun)
        said[one].add(str(answer))
    assert said["o"] == said["n"], f"they are answered in two ways: {said}"
    z = abs(rank_test(taken["o"], taken["n"]))
    middle = [statistics.median(taken[one]) * 1e6 for one in ("o", "n")]
    detail = f"{middle[0]:.0f} and {middle[1]:.0f} µs, {tries} tries each"
    return Row(f"walls, {what}: another office beside none", z, "z", detail, f"≤ {MAX_Z}", z <= MAX_Z)


def rank_test(one: Sequence[float], other: Sequence[float]) -> float:
    """Return z of the Mann-Whitney test: how many standard deviations the ranks of ``one`` are off the middle."""
    pairs = sorted([(value, True) for value in one] + [(value, False) for value in other])
    ranks = sum(rank for rank, (_, mine) in enumerate(pairs, 1) if mine)
    n, m = len(one), len(other)
    return (ranks - n * (n + m + 1) / 2) / math.sqrt(n * m * (n + m + 1) / 12)


def run() -> int:
    """Measure, print, and tell by the status whether all goals are met."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", choices=["", "calls", "floods", "walls"], help="this part alone")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each server")
    parser.add_argument("--quick", action="store_true", help="a few members and calls")
    add_options(parser)
    options = parser.parse_args()
    rows = asyncio.run(main(options))
    show("offices", rows, options)
    return 0 if all(row.met is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(run())
