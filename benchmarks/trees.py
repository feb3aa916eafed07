"""A large directory lent as a whole: how long each step takes, and whether the lender's daemon answers meanwhile.

    python benchmarks/trees.py [--files N] [--json] [--markdown]

A directory of ``--files`` small files is lent once, and again when its snapshot is known. While that goes on, both
daemons are asked how they are, every 20 ms: what an answer takes at most is how long an event loop was blocked at most.
Exit status 1 where the work does not go on, or an answer takes longer than the goal.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _report import RELIABILITY, Row, add_options, show
from sublet.daemon.api.daemon import SHOW_STATUS
from sublet.daemon.api.operation import Nothing

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.daemons import Daemon, two_daemons
from support.leases import begin, control, finish, view

PER_DIRECTORY = 100
ANSWER_GOAL_SECONDS = 1.0
"""A daemon that is asked answers within this, whatever it does; a plain answer takes some milliseconds."""
ASK_SECONDS = 0.02
END_SECONDS = 600.0


def main() -> int:
    """Measure, print, and tell by the status whether it answered."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=99_000, help="policy lets 100,000 be lent by default")
    add_options(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slt-") as base, two_daemons(Path(base)) as (lender, worker):
        directory = Path(base) / "lent"
        fill(directory, options.files)
        before = memory(lender)
        answers: dict[str, list[float]] = {"lender": [], "executor": []}
        with asked(lender, answers["lender"]), asked(worker, answers["executor"]):
            first, again = lend(lender, directory), lend(lender, directory)
        rows = [
            Row(f"{options.files:,} files lent, work begins after", first[0], "s", f"{again[0]:.1f} s the next time"),
            Row("end and audit", first[1], "s", f"{again[1]:.1f} s the next time"),
            Row("lender, memory at most", peak(lender), "MiB", f"{before:.0f} MiB before"),
        ]
        for name, found in answers.items():
            worst = max(found)
            goal = f"≤ {ANSWER_GOAL_SECONDS:.0f} s"
            detail = f"of {len(found):,}; median {sorted(found)[len(found) // 2] * 1000:.0f} ms"
            rows.append(Row(f"{name}, slowest answer", worst, "s", detail, goal, worst <= ANSWER_GOAL_SECONDS))
    show("trees", rows, options, RELIABILITY)
    return 1 if any(row.met is False for row in rows) else 0


def fill(directory: Path, files: int) -> None:
    """Make a directory with so many small files, a hundred in each of its directories."""
    for number in range(files):
        group, name = divmod(number, PER_DIRECTORY)
        below = directory / f"part{group // PER_DIRECTORY}" / f"group{group}"
        if name == 0:
            below.mkdir(parents=True)
        (below / f"file{name}.txt").write_text(f"{number}\n")


def lend(lender: Daemon, directory: Path) -> tuple[float, float]:
    """Lend ``directory`` to an agent that adds a line; return the seconds until it works, and from its end on.

    Raises:
        SystemExit: it was not done.
    """
    began = time.monotonic()
    delegation = begin(lender, directory, "echo x >> part0/new", "--ttl", "10m")
    while str(view(lender, delegation).state) in ("created", "invited", "accepted", "started"):
        time.sleep(0.02)
    working = time.monotonic()
    ended = finish(lender, delegation, END_SECONDS)
    if (
        str(ended.state) != "completed"
        or ended.audit is None
        or ended.audit.counts not in ({"added": 1}, {"changed": 1})
    ):
        sys.exit(f"the work was not done: {ended.state} {ended.error} {ended.audit}")
    return working - began, time.monotonic() - working


@contextmanager
def asked(daemon: Daemon, answers: list[float]) -> Iterator[None]:
    """Ask ``daemon`` for its status again and again meanwhile, and keep how many seconds each answer took."""
    over = threading.Event()

    async def ask() -> None:
        async with control(daemon) as client:
            while not over.is_set():
                began = time.monotonic()
                await client.call(SHOW_STATUS, Nothing())
                answers.append(time.monotonic() - began)
                await asyncio.sleep(ASK_SECONDS)

    thread = threading.Thread(target=lambda: asyncio.run(ask()))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def memory(daemon: Daemon) -> float:
    """Return what a daemon uses, in MiB."""
    return _field(daemon, "VmRSS")


def peak(daemon: Daemon) -> float:
    """Return what a daemon has used at most since it began, in MiB."""
    return _field(daemon, "VmHWM")


def _field(daemon: Daemon, name: str) -> float:
    for line in Path(f"/proc/{daemon.pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(name)


if __name__ == "__main__":
    sys.exit(main())
