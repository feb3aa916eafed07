"""Kills what takes part in a delegation at every journal write of both sides, and tells what came of each.

    python benchmarks/crashes.py [--cases N] [--minutes M] [--seed S] [--markdown]

Without ``--cases`` and ``--minutes`` the whole matrix runs: every journal write of the lender's and of the executor's
daemon, held just before and just after its commit, times every one and every two of lender, executor, sshfs and the
agent, each killed by SIGKILL, and each daemon twice, once more while it recovers. Afterwards the killed daemons are
started again, and then nothing acknowledged may be unknown, every end must be true, no mount, lock, lease, slot,
scratch directory or process may be left, both databases must be whole, and the next delegation of the same directory
must work. Exit status 1 where anything of it was not so.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

from _report import RELIABILITY, text_table, write_table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.crashes import Outcome, Way, cases, crash_scene, table

HEAD = ("killed", "cases", "completed", "ended with an error", "never recorded", "resumed", "wrong", "longest (s)")


def main() -> int:
    """Run the matrix, or a sample of it, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, help="run that many, chosen at random, and not all")
    parser.add_argument("--minutes", type=float, help="begin no further case after that time")
    parser.add_argument("--seed", type=int, default=1, help="of the choice and of the order")
    parser.add_argument("--way", choices=get_args(Way), default="live", help="how the files are lent")
    parser.add_argument("--markdown", action="store_true", help="write the table into docs/reliability.md as well")
    options = parser.parse_args()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="slt-") as base, crash_scene(Path(base), options.way) as scene:
        chosen = cases(scene)
        random.Random(options.seed).shuffle(chosen)
        began = time.monotonic()
        for case in chosen[: options.cases]:
            if options.minutes and time.monotonic() - began > options.minutes * 60:
                break
            outcome = scene.run(case)
            outcomes.append(outcome)
            told = "; ".join(outcome.wrong) or "right"
            print(
                f"{len(outcomes)}/{len(chosen)} {case} ({outcome.label}): {outcome.state} {outcome.code} {told}",
                flush=True,
            )
    rows = table(outcomes)
    print(text_table(HEAD, rows))
    if options.markdown:
        write_table("crashes", HEAD, rows, RELIABILITY, f"{len(outcomes)} cases of {len(chosen)}, seed {options.seed}.")
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
