"""What a peer or a stranger can bring about: the cost of every decoder, and floods against a lender that works.

    python benchmarks/hostile.py [--costs] [--floods] [--only TEXT]... [--seconds S] [--quick] [--json] [--markdown]

Costs: each probe of ``tests/attacks/probes`` at n and 2n bytes, by the processor time of its thread, the quicker of
several runs. Floods: each of ``tests/attacks/floods`` runs in a process of its own against a real lender, beside an
honest lease whose mount is looked at all the time; then the attacker's delegation is cancelled under the flood. Floods
of a relay run against a real one, beside a client that asks its hub something all the time.
Memory is compared with what there was before the flood, after one honest pass of each kind of request: what a daemon
loads for the first of a kind is no flood's. The longest answer without any flood is measured first and told beside
each, since other programs of the machine make honest leases wait as well; a flood that misses a goal is played three
times, and the middle one counts. ``--quick`` measures each once, for whoever wants to see that all of it works. Exit
status 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from _report import RELIABILITY, Row, add_options, show
from sublet.daemon.api.delegation_fields import OneDelegation
from sublet.daemon.api.delegations import CANCEL_DELEGATION

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from _hostile_stage import Asker, Looker, Stage, flooding, memory_of, resident, staged
from _relay_stage import RelayStage, relay_staged

# Modules here have names that packages of the tests have, too, such as ``messaging``.
sys.path.remove(str(Path(__file__).resolve().parent))

from attacks.flood import Flood
from attacks.floods import ALL as FLOODS
from attacks.floods.nothing import FLOODS as IDLE
from attacks.kit.honest_pass import honest_pass
from attacks.probe import CostProbe
from attacks.probes import ALL as PROBES
from sublet.protocol.messages import Start
from support.daemons import Daemon, wait_for
from support.leases import control, view

NOTHING = IDLE[0]
LINEAR = 2.5
STALL_SECONDS = 0.1
CUT_SECONDS = 0.25
TAKEN_BYTES = 64 << 20
HELD_BYTES = 8 << 20
RUNS = 5
LEAST_SECONDS = 0.002
"""A run shorter than this tells nothing about growth: the input is made larger until one takes as long."""
REST_SECONDS = 10.0
"""How long the daemon has to give memory back after the attacker has gone; it takes about two."""
TURNS = 3
"""A flood that misses a goal is played so often, and the middle one counts: a machine has other work now and then."""
SETTLE_SECONDS = 3.0
"""What is waited for in any case, since an answer may still take memory after it was given."""
QUICK_SETTLE_SECONDS = 0.3
END_SECONDS = 60.0
ANSWER_SECONDS = 5.0
"""How long the attacker's own request may wait in its own flood before the cancel."""


def main() -> int:
    """Measure, print, and tell by the status whether all goals are met."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--costs", action="store_true", help="the costs alone")
    parser.add_argument("--floods", action="store_true", help="the floods alone")
    parser.add_argument("--only", action="append", help="what has this in its name; may be given more than once")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each flood lasts before the cancel")
    parser.add_argument("--quick", action="store_true", help="measure each once, whatever goal it misses")
    add_options(parser)
    options = parser.parse_args()
    turns, settle = (1, QUICK_SETTLE_SECONDS) if options.quick else (TURNS, SETTLE_SECONDS)
    gc.collect()
    gc.freeze()  # what is imported need not be looked through before each run
    only = options.only or [""]
    rows: list[Row] = []
    if not options.floods:
        probes = [probe for probe in PROBES if isinstance(probe, CostProbe) and any(one in probe.name for one in only)]
        rows += [told(cost(probe, turns)) for probe in probes]
    if not options.costs:
        chosen = [flood for flood in FLOODS if any(one in flood.name for one in only)]
        if of_lender := [flood for flood in chosen if flood.victim == "lender"]:
            rows += anyio.run(play, of_lender, options.seconds, turns, settle)
        if of_relay := [flood for flood in chosen if flood.victim == "relay"]:
            rows += anyio.run(play_at_relay, of_relay, options.seconds, turns, settle)
    show("hostile", rows, options, RELIABILITY)
    return 0 if all(row.met for row in rows) else 1


def told(row: Row) -> Row:
    """Say on standard error what was measured, since all of them take minutes."""
    print(f"{row.what}: {row.ratio or 0:.2f} at 2n, {row.detail}", file=sys.stderr, flush=True)
    return row


def cost(probe: CostProbe, turns: int) -> Row:
    """Time a probe at n and at 2n bytes."""
    size = probe.size
    goal = f"≤ {LINEAR} at 2n"
    try:
        while quickest(probe, size, runs=1) < LEAST_SECONDS and size < probe.most // 2:
            size *= 2
        small, large = quickest(probe, size), quickest(probe, 2 * size)
        for _ in range(turns - 1):
            # Somebody else on the machine may have slowed all runs of one size.
            if large <= LINEAR * small:
                break
            small, large = min(small, quickest(probe, size)), min(large, quickest(probe, 2 * size))
        ratio = large / small
    except Exception as error:
        # One probe that is wrong at a size must not hide what the others found.
        return Row(probe.name, 0, "ns a byte", f"raised {type(error).__name__}: {error}", goal, met=False)
    return Row(probe.name, small / size * 1e9, "ns a byte", f"n = {size:,}", goal, ratio <= LINEAR, ratio=ratio)


def quickest(probe: CostProbe, size: int, runs: int = RUNS) -> float:
    """Return the processor seconds of the quickest of several runs."""
    best = float("inf")
    for _ in range(runs):
        made = probe.make(size)
        gc.collect()
        begun = time.thread_time()
        probe.run(made)
        best = min(best, time.thread_time() - begun)
    return best


async def play(chosen: list[Flood], seconds: float, turns: int, settle: float) -> list[Row]:
    """Run the floods one after the other on one stage."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="slt-") as scratch:
        async with staged(Path(scratch)) as stage:
            await warm_up(stage, settle)
            # What an honest lease waits for on this machine without any flood is no flood's doing.
            idle, *_ = await against(stage, NOTHING, seconds, settle)
            rows.append(idle)
            for flood in chosen:
                if flood is not NOTHING:
                    beside = f"{idle.value:.0f} without a flood"
                    rows += await middle(partial(against, stage, flood, seconds, settle, beside), turns)
    return rows


async def play_at_relay(chosen: list[Flood], seconds: float, turns: int, settle: float) -> list[Row]:
    """Run the floods of a relay one after the other, beside a client that asks it something all the time."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="slt-") as scratch, relay_staged(Path(scratch)) as stage:
        await stage.warm_up()
        for flood in chosen:
            rows += await middle(partial(against_relay, stage, flood, seconds, Path(scratch), settle), turns)
    return rows


async def against_relay(stage: RelayStage, flood: Flood, seconds: float, scratch: Path, settle: float) -> list[Row]:
    """Run one flood of a relay and look at stalls and memory."""
    stage.asking.anew()
    await anyio.sleep(settle)
    beside, before = f"{stage.asking.longest * 1000:.0f} without a flood", memory_of(stage.pid)
    stage.asking.anew()
    taken = 0
    with flooding(flood, stage.target(), scratch, seconds + 60):
        until = anyio.current_time() + seconds
        while anyio.current_time() < until:
            taken = max(taken, memory_of(stage.pid) - before)
            await anyio.sleep(0.1)
        stall = stage.asking.longest
    await anyio.sleep(settle)
    with anyio.move_on_after(REST_SECONDS - settle):
        while memory_of(stage.pid) - before > HELD_BYTES:
            await anyio.sleep(0.1)
    held = memory_of(stage.pid) - before
    name = f"{flood.who}, {flood.name}"
    rows = [
        Row(f"{name}: longest answer to others", stall * 1000, "ms", beside, "≤ 100", stall <= STALL_SECONDS),
        Row(f"{name}: memory taken", taken / (1 << 20), "MiB", "", "≤ 64", taken <= TAKEN_BYTES),
        Row(f"{name}: memory still held", held / (1 << 20), "MiB", "", "≤ 8", held <= HELD_BYTES),
    ]
    print(name, *(f"{row.value:.0f} {row.unit}" for row in rows), sep="; ", file=sys.stderr, flush=True)
    return rows


async def middle(turn: Callable[[], Awaitable[list[Row]]], most: int) -> list[Row]:
    """Return what a flood did: at once where it met all goals, and of several turns the one in the middle otherwise."""
    turns = [await turn()]
    if most == 1 or all(row.met for row in turns[0]):
        return turns[0]
    turns += [await turn() for _ in range(most - 1)]
    each = zip(*turns, strict=True)
    values = [sorted(rows, key=lambda row: row.value)[most // 2] for rows in each]
    return [replace(row, detail=f"{row.detail}; middle of {most}".removeprefix("; ")) for row in values]


async def warm_up(stage: Stage, settle: float) -> None:
    """Make each kind of request once, as an honest program does, in a lease that ends as the attacker's will."""
    delegation, start = await stage.lend()
    await honest_pass(stage.target(start))
    async with control(stage.lender) as client:
        await client.call(CANCEL_DELEGATION, OneDelegation(delegation_id=delegation))
    await anyio.to_thread.run_sync(partial(wait_for, lambda: ended(stage.lender, delegation), END_SECONDS))
    await anyio.sleep(settle)


async def against(stage: Stage, flood: Flood, seconds: float, settle: float, beside: str = "") -> list[Row]:
    """Run one flood and look at stalls, the cut and memory; ``beside`` is told with the stalls."""
    delegation, start = await stage.lend(flood.transport)
    before = resident(stage.lender)
    looker = Looker(stage.honest)
    taken = [0]

    async def watch() -> None:
        while True:
            taken[0] = max(taken[0], resident(stage.lender) - before)
            await anyio.sleep(0.1)

    async with anyio.create_task_group() as watching:
        watching.start_soon(watch)
        stall, cut = await played(stage, flood, start, delegation, looker, seconds)
        # What the end of the attacker's lease takes is its doing as well, and nothing is held before that is over.
        await anyio.to_thread.run_sync(partial(wait_for, lambda: ended(stage.lender, delegation), END_SECONDS))
        await anyio.sleep(settle)
        with anyio.move_on_after(REST_SECONDS - settle):
            while resident(stage.lender) - before > HELD_BYTES:
                await anyio.sleep(0.1)
        watching.cancel_scope.cancel()
    held = resident(stage.lender) - before
    name = f"{flood.who}, {flood.name}"
    spent = "" if cut is not None else "the flood has used up its own access"
    rows = [
        Row(f"{name}: longest answer to others", stall * 1000, "ms", beside, "≤ 100", stall <= STALL_SECONDS),
        Row(f"{name}: cancel to refused I/O", (cut or 0) * 1000, "ms", spent, "≤ 250", (cut or 0) <= CUT_SECONDS),
        Row(f"{name}: memory taken", taken[0] / (1 << 20), "MiB", "", "≤ 64", taken[0] <= TAKEN_BYTES),
        Row(f"{name}: memory still held", held / (1 << 20), "MiB", "", "≤ 8", held <= HELD_BYTES),
    ]
    print(name, *(f"{row.value:.0f} {row.unit}" for row in rows), sep="; ", file=sys.stderr, flush=True)
    return rows


async def played(
    stage: Stage, flood: Flood, start: Start, delegation: str, looker: Looker, seconds: float
) -> tuple[float, float | None]:
    """Flood, cancel the attacker's delegation, and return the longest answer to others and what ``cut_after`` does."""
    try:
        with flooding(flood, stage.target(start), stage.scratch, seconds + 60):
            await anyio.sleep(seconds)
            return looker.longest, await cut_after(stage, delegation)
    finally:
        looker.close()


def ended(lender: Daemon, delegation: str) -> bool:
    """Tell whether a delegation has ended, and what it changed was looked at."""
    return view(lender, delegation).audit is not None


async def cut_after(stage: Stage, delegation: str) -> float | None:
    """Cancel the attacker's delegation and return the seconds until its I/O is refused.

    Under some floods the attacker's own further requests find no room at all; then the refusal is all there is to see,
    and where it came before the cancel, nothing.
    """
    asker = Asker(stage.worker, stage.worker.starts[delegation])
    async with anyio.create_task_group() as tasks, control(stage.lender) as client:
        tasks.start_soon(asker.run)
        with anyio.move_on_after(ANSWER_SECONDS):
            await asker.answered.wait()
        if asker.refused.is_set():
            await client.call(CANCEL_DELEGATION, OneDelegation(delegation_id=delegation))
            return None
        begun = time.monotonic()
        tasks.start_soon(partial(client.call, CANCEL_DELEGATION, OneDelegation(delegation_id=delegation)))
        with anyio.move_on_after(60):
            await asker.refused.wait()
        ended = time.monotonic()
    return ended - begun


if __name__ == "__main__":
    sys.exit(main())
