"""Random histories of daemons in rooms: whether every member that may have it shows all that was acknowledged, alike.

    python benchmarks/convergence.py [--seeds N] [--operations M] [--only KIND] [--seed S] [--daemons N] [--processes]
                                     [--shrink SECONDS] [--script FILE] [--minutes M] [--markdown]
                                     [--results [FILE]] [--older]

A history is made of a seed: two to six daemons do everything that can be done in rooms, and faults of one kind come
over them. After the last repair every member has to show all that was acknowledged, equal and in the same order, within
ten seconds; on a machine that does other things meanwhile ``--patience`` waits longer, and the table tells how many
were late. By default the daemons are whole messaging services over Zenoh and pinned links in one process; with
``--processes`` they are real ones, each in a network namespace, killed by SIGKILL. Kinds are played in turn, so that
each gets its share of the seeds. ``--only KIND --seed S --seeds 1`` plays one again, ``--shrink`` shortens each that
fails, and ``--script`` plays what that printed. Exit status 1 where anything was lost or differed.

``--results`` keeps what came of each history as a line of ``benchmarks/convergence.jsonl``, or of another file, with a
digest of the code that was played: rooms, their protocol, and what plays histories. What this code has played is not
played again, so 200 histories can be gathered in several runs and over days, while other parts change.
``--seeds 0 --results --markdown`` writes the table of those that this code has played; with ``--older`` those count too
that other code has played, and none of them that was right is played again.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from _report import RELIABILITY, text_table, write_table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.histories.generating import generate
from support.histories.kept import Kept, Results, state
from support.histories.kinds import KINDS
from support.histories.playing import play
from support.histories.shrinking import shrink
from support.histories.stage import Stage
from support.histories.staging import in_processes, in_this_process
from support.histories.steps import History, read_script
from support.histories.verdict import Verdict
from support.plain_logs import log_plainly

PATIENCE_SECONDS = 10.0
GATHERED = Path(__file__).with_suffix(".jsonl")
HEAD = (
    "fault",
    "histories",
    "daemons",
    "acknowledged",
    "lost",
    "differed",
    "errors",
    "until equal (s): median, longest",
)


@dataclass
class Tally:
    """What came of the histories of one kind."""

    played: list[Kept] = field(default_factory=list)

    def cells(self, kind: str) -> tuple[str, ...]:
        """Return its row."""
        times = [one.seconds for one in self.played if one.seconds is not None]
        late = len(self.played) - sum(one <= PATIENCE_SECONDS for one in times)
        shown = f"{statistics.median(times):.1f}, {max(times):.1f}" if times else ""
        daemons = [one.daemons for one in self.played]
        return (
            kind,
            str(len(self.played)),
            str(min(daemons)) if min(daemons) == max(daemons) else f"{min(daemons)} to {max(daemons)}",
            f"{sum(one.acknowledged for one in self.played):,}",
            str(sum(one.lost for one in self.played)),
            str(sum(one.differed for one in self.played)),
            str(sum(one.errors for one in self.played)),
            f"{shown}; {late} late" if late else shown,
        )


def main() -> int:
    """Play the histories, print what came of them, and tell by the status whether all was right."""
    options = _options()
    log_plainly()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no daemon and no namespace is left
    return asyncio.run(_run(options))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=200, help="how many histories")
    parser.add_argument("--operations", type=int, default=500, help="of each, beside its faults")
    parser.add_argument("--only", choices=list(KINDS), action="append", help="play this kind of faults alone")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--daemons", type=int, help="how many, instead of what each seed says")
    parser.add_argument("--processes", action="store_true", help="real daemons in network namespaces, which takes root")
    parser.add_argument("--shrink", type=float, default=0.0, help="seconds for shortening each one that fails")
    parser.add_argument("--script", type=Path, help="play the history that this file tells, and no other")
    parser.add_argument("--patience", type=float, default=PATIENCE_SECONDS, help="seconds until all has to be equal")
    parser.add_argument("--minutes", type=float, help="begin no further history after that time")
    parser.add_argument(
        "--results",
        type=Path,
        nargs="?",
        const=GATHERED,
        help="keep what came of each, and play none twice",
    )
    parser.add_argument("--older", action="store_true", help="let those count too that other code has played")
    parser.add_argument("--markdown", action="store_true", help="write the table into docs/reliability.md as well")
    return parser.parse_args()


def _histories(options: argparse.Namespace) -> Iterator[History]:
    if options.script:
        yield read_script(options.script.read_text(encoding="utf-8"))
        return
    kinds = itertools.cycle(options.only or list(KINDS))
    for number, kind in zip(range(options.seeds), kinds, strict=False):
        yield generate(kind, options.seed + number, options.operations, options.daemons)


async def _run(options: argparse.Namespace) -> int:
    now, began = state(options.processes), time.monotonic()
    results = Results(options.results, options.operations, options.processes, now)
    played: list[Kept] = []
    for history in _histories(options):
        if options.minutes and time.monotonic() - began > options.minutes * 60:
            break
        if not results.needs(history, older=options.older):
            continue
        worked = time.process_time()
        verdict = await _played(history, options)
        played.append(results.keep(history, verdict, time.process_time() - worked))
        print(
            f"{history.kind}, seed {history.seed}, {history.daemons} daemons, {played[-1].worked} s worked, "
            f"{verdict.operating_seconds:.1f} s for one operation: {verdict}",
            flush=True,
        )
        if not verdict.right and options.shrink:
            await _shortened(history, verdict, options)
    if options.results:
        played = results.all(older=options.older)
    _show(played, options)
    return int(not all(one.right for one in played))


def _show(played: Sequence[Kept], options: argparse.Namespace) -> None:
    """Print the table, and write it into its page where that is wanted."""
    tallies: dict[str, Tally] = {}
    for one in played:
        tallies.setdefault(one.kind, Tally()).played.append(one)
    rows = [tallies[kind].cells(kind) for kind in KINDS if kind in tallies]
    print(text_table(HEAD, rows))
    if not played:
        return
    worked = [one.worked for one in played]
    commits = Counter(one.commit for one in played)
    often = ", ".join(f"{commit} ({count})" for commit, count in sorted(commits.items()))
    codes = ", ".join(sorted({one.code for one in played}))
    note = (
        f"{len(played)} histories of {options.operations} operations beside faults; one took "
        f"{statistics.median(worked):.0f} s of processor where it was played (median; at most {max(worked):.0f} s). "
        f"The code that was played: {codes}, of commits {often}."
    )
    print(note)
    if options.markdown:
        write_table("convergence-daemons" if options.processes else "convergence", HEAD, rows, RELIABILITY, note)


async def _played(history: History, options: argparse.Namespace) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="cv-") as base:
        place = Path(base)
        stage: AbstractAsyncContextManager[Stage] = (in_processes if options.processes else in_this_process)(
            place, history
        )
        async with stage as ready:
            return await play(history, ready, options.patience, forcing=True)


async def _shortened(history: History, verdict: Verdict, options: argparse.Namespace) -> None:
    """Print a shorter history that fails in the same way."""

    async def fails(shorter: History) -> bool:
        found = await _played(shorter, options)
        return bool(found.ways() & verdict.ways())

    def told(shorter: History) -> None:
        print(f"  {len(shorter.steps)} of {len(history.steps)} steps fail as well", file=sys.stderr, flush=True)

    print(f"The shortest history found that fails in one of these ways: {', '.join(sorted(verdict.ways()))}")
    print((await shrink(history, fails, options.shrink, told)).script(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
