"""Messages between two processes now, beside the same of an earlier version, in turns in the same run.

    python benchmarks/messaging_since.py [--since COMMIT] [--messages N] [--flood N] [--rounds N] [--json] [--markdown]

The earlier version is checked out of this repository's history into a temporary directory and run from there. Less is
better, except for messages a second. Which of both begins changes with each turn; a ratio is the median of the turns'
own, since a shared machine is faster at one time than at another.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from _report import Row, add_options, show

ROOT: Final = Path(__file__).resolve().parent.parent
SINCE: Final = "7826a439"
"""The last one before rooms were compared by digest trees."""
GOAL: Final = 1.1
"""What a turn differs by where nothing has changed."""
TURN_SECONDS: Final = 600.0


def checked_out(commit: str, place: Path) -> Path:
    """Return a directory with the source, the tests and the benchmarks of a commit.

    Raises:
        SystemExit: the history does not have it.
    """
    archive = place / "since.tar"
    names = ["src", "tests", "benchmarks", "pyproject.toml"]
    done = subprocess.run(["git", "-C", ROOT, "archive", "--output", archive, commit, *names], check=False)
    if done.returncode != 0:
        sys.exit(f"the history of {commit} is not here")
    checkout = place / "since"
    checkout.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", checkout], check=True)
    return checkout


def turn(checkout: Path, messages: int, flood: int) -> dict[str, Any]:
    """Return what a version needed."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(checkout / "src"), str(checkout / "tests")))}
    argv = [sys.executable, str(Path(__file__).with_name("_messaging_turn.py")), str(checkout)]
    done = subprocess.run(
        [*argv, str(messages), str(flood)],
        env=environ,
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
        timeout=TURN_SECONDS,
    )
    if done.returncode != 0:
        sys.exit(f"a turn with {checkout} has failed:\n{done.stderr[-4_000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(now: list[dict[str, Any]], then: list[dict[str, Any]], messages: int) -> list[Row]:
    """Return a row for each figure."""
    room = f"room of {messages:,} messages"
    rows = [
        _row(f"{room}: processor time to send one", "µs", [_us(one, "send_us") for one in (now, then)]),
        _row(f"{room}: processor time to take in one", "µs", [_us(one, "take_us") for one in (now, then)]),
        _row(f"{room}: messages a second", "/s", [[found["rate"] for found in one] for one in (now, then)], more=True),
    ]
    for pace in now[0]["delays_ms"]:
        delays = [[found["delays_ms"][pace] for found in one] for one in (now, then)]
        rows.append(_row(f"{room}: sent to seen, one every {pace} ms, p50", "ms", delays))
    rows.append(_row(f"{room}: start of a peer", "s", [[found["start"] for found in one] for one in (now, then)]))
    rows.append(_row(f"{room}: memory after all this", "MiB", [[found["mib"] for found in one] for one in (now, then)]))
    return rows


def _us(turns: list[dict[str, Any]], name: str) -> list[float]:
    return [found[name] for found in turns]


def _row(what: str, unit: str, both: list[list[float]], *, more: bool = False) -> Row:
    now, then = both
    ratios = [one / other for one, other in zip(now, then, strict=True)]
    ratio = statistics.median(ratios)
    met = ratio >= 1 / GOAL if more else ratio <= GOAL
    goal = f"≥ {1 / GOAL:.2f} of before" if more else f"≤ {GOAL:g} times before"
    detail = f"ratios {min(ratios):.2f} to {max(ratios):.2f}"
    return Row(
        what, statistics.median(now), unit, detail, goal, met, f"{statistics.median(then):,.4g} {unit}, before", ratio
    )


def main() -> int:
    """Measure and show; exit status 1 where something got slower."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--since", default=SINCE, metavar="COMMIT")
    parser.add_argument("--messages", type=int, nargs="+", default=[0], help="in the room before")
    parser.add_argument("--flood", type=int, default=6_400, help="messages that are sent at once")
    parser.add_argument("--rounds", type=int, default=5)
    add_options(parser)
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="sublet-bench-") as name:
        versions = [ROOT, checked_out(options.since, Path(name))]
        for messages in options.messages:
            found: dict[Path, list[dict[str, Any]]] = {version: [] for version in versions}
            for number in range(options.rounds):
                for version in versions if number % 2 else versions[::-1]:
                    found[version].append(turn(version, messages, options.flood))
            rows += compared(found[versions[0]], found[versions[1]], messages)
    show("messaging_since", rows, options)
    return 0 if all(row.met is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
