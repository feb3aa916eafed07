"""Many leases at once, and many one after another: what they cost, and whether anything of them stays.

    python benchmarks/soak.py [--quick] [--json] [--markdown]

Two daemons on loopback. First 50 directories are lent at once, each mounted by sshfs with an agent at work in it, until
all have begun; they are measured as they stand and then let go. Then 1,000 short delegations run, a few at a time, and
memory, open files, threads and tasks of both daemons are compared with what they were once warm. Exit status 1 where
anything is left that should be gone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from _report import RELIABILITY, Row, add_options, show
from sublet.daemon.api.daemon import SHOW_STATUS
from sublet.daemon.api.delegations import CREATE_DELEGATION, WAIT_FOR_END, WaitForEnd
from sublet.daemon.api.operation import Nothing

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import CreateDelegation
from support.daemons import Daemon, two_daemons, wait_for
from support.leases import ask, control, processes_with
from support.leftovers import held

GATED = "echo begun > begun; until [ -e go ]; do sleep 0.2; done; echo done > finished"
TTL_SECONDS = 600
AT_ONCE = 4
"""Short delegations that are under way together."""
GROWTH_MIB = 12.0
"""What a process may grow by after it is warm: allocators keep some, a leak of 20 KiB per delegation shows."""
HISTORY = (
    ("delegations", "true"),
    ("assignments", "true"),
    ("events", "delegation_id IS NOT NULL"),
    ("resources", "released_at IS NULL"),
)
"""What a delegation leaves in the database until it is pruned, and what it may not leave at all."""
REST_SECONDS = 30.0
"""How long a daemon may take to come back to what it used before."""
SLACK = 2
"""Open files, threads or tasks more than before that are no leak: connections come and go."""


@dataclass(frozen=True)
class Size:
    """How many leases at once, how many one after another, and after how many of those a daemon counts as warm."""

    at_once: int
    short: int
    warm: int


FULL = Size(at_once=50, short=1000, warm=200)
QUICK = Size(at_once=4, short=16, warm=8)


@dataclass(frozen=True)
class Use:
    """What a daemon's process uses: resident MiB, open files, threads, tasks on its event loop."""

    rss: float
    files: int
    threads: int
    tasks: int


def main() -> int:
    """Measure, print, and tell by the status whether anything was left."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few leases, to see that everything runs")
    add_options(parser)
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    with scene(size) as (base, lender, worker):
        rows, left = at_once(base, lender, worker, size.at_once)
        more, kept = one_after_another(base, lender, worker, size)
    show("soak", [*rows, *more], options, RELIABILITY)
    for line in (*left, *kept):
        print(line, file=sys.stderr)
    return 1 if left or kept else 0


@contextlib.contextmanager
def scene(size: Size) -> Iterator[tuple[Path, Daemon, Daemon]]:
    """Run a lender and a worker with as many slots as are needed."""
    slots = {"version": 1, "limits": {"slots": max(size.at_once, AT_ONCE)}}
    with tempfile.TemporaryDirectory(prefix="slt-") as name:
        base = Path(name)
        with two_daemons(base, executor_policy=slots) as (lender, worker):
            yield base, lender, worker


def at_once(base: Path, lender: Daemon, worker: Daemon, count: int) -> tuple[list[Row], list[str]]:
    """Hold ``count`` leases with real mounts at once and return what each costs, and what is left of them."""
    directories = [base / f"lent-{number}" for number in range(count)]
    for directory in directories:
        directory.mkdir()
    before = use(lender), use(worker)
    began = time.monotonic()
    ids = asyncio.run(create(lender, directories, GATED))
    wait_for(lambda: all((d / "begun").exists() for d in directories), 120, "the work in all")
    running = time.monotonic() - began
    mounted = len(worker.mounts)
    during = use(lender), use(worker)
    sshfs = [memory(pid) for pid in processes_with("passive") if command(pid) == "sshfs"]
    let_go = time.monotonic()
    for directory in directories:
        (directory / "go").touch()
    ended = asyncio.run(wait_all(lender, ids))
    done = time.monotonic() - let_go
    left = [f"{view.delegation_id} ended as {view.state}: {view.error}" for view in ended if view.state != "completed"]
    left += [] if mounted == count else [f"{mounted} mounts of {count}"]
    left += rest(lender) + rest(worker)
    names = ("lender", "executor")
    rows = [
        Row(f"{count} leases at once, all at work after", running, "s", f"{running / count * 1000:.0f} ms each"),
        Row("all done and audited after", done, "s"),
        *(_memory_row(name, then, now, count) for name, then, now in zip(names, before, during, strict=True)),
        Row("sshfs, memory per mount", sum(sshfs) / max(1, len(sshfs)), "MiB", "proportional"),
        *(
            Row(f"{name}, open files per lease", (now.files - then.files) / count, "", f"{now.files} in all")
            for name, then, now in zip(names, before, during, strict=True)
        ),
    ]
    return rows, left


def _memory_row(name: str, then: Use, now: Use, count: int) -> Row:
    more, detail = now.rss - then.rss, f"{then.rss:.0f} to {now.rss:.0f} MiB"
    if name == "executor":
        return Row(f"{name}, memory per lease", more / count, "MiB", detail)
    return Row(f"{name}, memory per lease", more / count, "MiB", detail, goal="< 1 MiB", met=more < count)


def one_after_another(base: Path, lender: Daemon, worker: Daemon, size: Size) -> tuple[list[Row], list[str]]:
    """Run many short delegations and return how much both daemons have grown since they were warm."""
    directories = [base / f"short-{number}" for number in range(AT_ONCE)]
    for directory in directories:
        directory.mkdir()
    began = time.monotonic()
    asyncio.run(short(lender, directories, size.warm))
    warm = settled(lender), settled(worker)
    asyncio.run(short(lender, directories, size.short - size.warm))
    took = time.monotonic() - began
    after = settled(lender, warm[0]), settled(worker, warm[1])
    rows = [
        Row(
            f"{size.short:,} short delegations, {AT_ONCE} at a time",
            took,
            "s",
            f"{took / size.short * 1000:.0f} ms each",
        )
    ]
    left = []
    for name, then, now in zip(("lender", "executor"), warm, after, strict=True):
        more = now.rss - then.rss
        left += [f"{name} has grown by {more:.1f} MiB"] if more > GROWTH_MIB else []
        left += [
            f"{name} has {new} {what}, {old} when warm" for what, old, new in _counts(then, now) if new > old + SLACK
        ]
        detail = ", ".join(f"{what} {old} to {new}" for what, old, new in _counts(then, now))
        rows.append(Row(f"{name}, growth after the first {size.warm}", more, "MiB", detail))
    kept = sum(count for _, count in table_rows(lender)) + sum(count for _, count in table_rows(worker))
    time.sleep(1.1)
    for daemon in (lender, worker):
        daemon.json("prune", "--older-than", "1s")
    stay = [f"{daemon.home.name}: {n} rows of {t}" for daemon in (lender, worker) for t, n in table_rows(daemon) if n]
    rows.append(Row("rows of history before a prune", kept, "rows", f"after it: {', '.join(stay) or 'none'}"))
    return rows, left + stay + rest(lender) + rest(worker)


def _counts(then: Use, now: Use) -> list[tuple[str, int, int]]:
    """Return what can be counted of two uses, by name."""
    return [
        ("open files", then.files, now.files),
        ("threads", then.threads, now.threads),
        ("tasks", then.tasks, now.tasks),
    ]


async def create(lender: Daemon, directories: Sequence[Path], prompt: str) -> list[str]:
    """Lend every directory and return the handles."""
    async with control(lender) as client:
        views = [
            await client.call(
                CREATE_DELEGATION,
                CreateDelegation(workspace_dir=str(directory), peer="bob", prompt=prompt, ttl_seconds=TTL_SECONDS),
            )
            for directory in directories
        ]
    return [view.delegation_id for view in views]


async def wait_all(lender: Daemon, ids: Sequence[str]) -> list[DelegationView]:
    """Wait until all are over and settled."""
    ended = []
    async with control(lender) as client:
        for id_ in ids:
            view = await client.call(WAIT_FOR_END, WaitForEnd(delegation_id=id_, timeout=45))
            while view.condition is not None or view.state == "running":
                view = await client.call(WAIT_FOR_END, WaitForEnd(delegation_id=id_, timeout=45))
            ended.append(view)
    return ended


async def short(lender: Daemon, directories: Sequence[Path], count: int) -> None:
    """Run ``count`` delegations that do next to nothing, one after another in each directory."""

    async def lane(directory: Path, turns: int) -> None:
        for _ in range(turns):
            (view,) = await wait_all_of(lender, directory)
            assert view.state == "completed", view

    async with asyncio.TaskGroup() as group:
        for number, directory in enumerate(directories):
            group.create_task(lane(directory, count // AT_ONCE + (number < count % AT_ONCE)))


async def wait_all_of(lender: Daemon, directory: Path) -> list[DelegationView]:
    """Lend one directory for a short delegation and return its end."""
    return await wait_all(lender, await create(lender, [directory], "date > now"))


def settled(daemon: Daemon, warm: Use | None = None) -> Use:
    """Return what a daemon uses once it has had a moment of rest, or long enough to come back to ``warm``.

    Rooms of delegations are closed a while after their leases end.
    """
    time.sleep(1.0)
    until = time.monotonic() + REST_SECONDS
    now = use(daemon)
    while warm is not None and time.monotonic() < until:
        if all(new <= old + SLACK for _, old, new in _counts(warm, now)):
            break
        time.sleep(1.0)
        now = use(daemon)
    return now


def use(daemon: Daemon) -> Use:
    """Return what a daemon's process uses now."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{daemon.pid}/status").read_text().splitlines() if ":" in line
    )
    tasks = ask(daemon, lambda client: client.call(SHOW_STATUS, Nothing())).tasks
    files = len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))
    return Use(int(fields["VmRSS"].split()[0]) / 1024, files, int(fields["Threads"]), tasks)


def memory(pid: int) -> float:
    """Return the proportional memory of a process in MiB; 0 where it is gone."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1024
    return 0.0


def command(pid: int) -> str:
    """Return the name of a process; empty where it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def rest(daemon: Daemon) -> list[str]:
    """Return what a daemon without work still holds."""
    with contextlib.suppress(AssertionError):
        wait_for(lambda: not held(daemon) and not daemon.mounts, 20, "a clean daemon")
    return [f"{daemon.home.name} holds {what}" for what in (*held(daemon), *daemon.mounts)]


def table_rows(daemon: Daemon) -> list[tuple[str, int]]:
    """Return how many rows of ended delegations, of assignments and of what they held there are."""
    with contextlib.closing(sqlite3.connect(f"file:{daemon.home}/state/sublet.db?mode=ro", uri=True)) as database:
        return [
            (table, int(database.execute(f"SELECT count(*) FROM {table} WHERE {only}").fetchone()[0]))
            for table, only in HISTORY
        ]


if __name__ == "__main__":
    sys.exit(main())
