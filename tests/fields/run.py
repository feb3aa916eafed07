"""``make fields``: drop each field that is accepted from outside, and see that its test turns red.

    make fields                                  every row of every register
    make fields ARGS="ConfigFile. mcp_server"    rows whose names hold one of these
    make fields ARGS="--sample 20"               a sample: another one for each state of the sources

Tests that a row names are collected once. Each runs once as things are, and then, in a fork of its own, without the
field of each row that names it (``dropping``).
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from fields.trying import Row, Trial, collect
from fields.walking import ROOTS, register

ROOT: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def rows() -> list[Row]:
    """Return the rows of all registers."""
    return [Row(field, row["test"]) for name in ROOTS for field, row in register(name)["fields"].items()]


def seed() -> str:
    """Return what is another text for each commit that changes anything; the same where there is no repository."""
    asked = ["git", "-C", ROOT, "rev-parse", "HEAD^{tree}"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def try_rows(chosen: Sequence[Row], workers: int) -> Trial:
    """Try rows, without a word of the tests that are to fail."""
    trial = Trial(chosen, workers)
    sys.stdout.flush()
    told, quiet = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    try:
        collect(trial.run, sorted({row.test.partition("::")[0] for row in chosen}))
    finally:
        os.dup2(told, 1)
        os.close(told)
        os.close(quiet)
    return trial


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="make fields", description="Drop each field; see that its test notices.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of fields, or parts of them; all by default")
    parser.add_argument("--sample", type=int, metavar="N", help="how many of them")
    parser.add_argument("--seed", help="which sample; by default another one for each commit")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    began = time.monotonic()
    os.chdir(ROOT)
    chosen = [row for row in rows() if not asked.names or any(name in row.field for name in asked.names)]
    if asked.sample is not None:
        drawn = random.Random(asked.seed or seed())
        chosen = drawn.sample(chosen, min(asked.sample, len(chosen)))
    trial = try_rows(chosen, asked.workers)
    for row in chosen:
        if why := trial.ends.get(row, "it was not tried"):
            print(f"{row.field}: {why}")
    observed = sum(trial.ends.get(row) == "" for row in chosen)
    unobserved = sum(len(register(name)["unobserved"]) for name in ROOTS)
    print(f"{time.monotonic() - began:.0f} s; beside these, {unobserved} fields have no effect, for a reason each")
    print(f"{observed} of {len(chosen)} observed")
    return 0 if observed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
