"""Kills peers of a room under load, and tells whether any message that was acknowledged is lost.

    python benchmarks/messaging_kills.py [--rounds N] [--seed S]

In each round one peer sends as fast as it can, and the sender, the receiver, or the receiver and then the sender, is
killed with SIGKILL at some moment and started again over its own database. At the end both must show the same messages
in the same order, every acknowledged one among them, none twice. Exit status 1 where anything of it was not so.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.message_kills import ALICE, BOB, BOB_THEN_ALICE, Rounds, Scene

ROUNDS = 50


def main() -> int:
    """Run the rounds and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seed", type=int, default=1, help="of who is killed, and when")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Scene(Path(directory), options.seed) as scene:
        for number in range(options.rounds):
            scene.round()
            print(f"\r{number + 1} of {options.rounds} rounds", end="", file=sys.stderr, flush=True)
        found = scene.settle()
    print(file=sys.stderr)
    print(
        f"{found.rounds} rounds of kill -9, of {_counted(found)}: "
        f"{len(found.lost)} of {len(found.acknowledged)} acknowledged messages lost, {found.twice} shown twice; "
        f"both show {'the same' if not found.differ else 'different things'}; "
        f"answering again after at most {max(found.recovered):.1f} s"
    )
    return int(bool(found.lost or found.twice or found.differ))


def _counted(found: Rounds) -> str:
    """Return how often who was killed."""
    words = {ALICE: "the sender", BOB: "the receiver alone", BOB_THEN_ALICE: "the receiver and then the sender"}
    return ", ".join(f"{words[victims]} in {count}" for victims, count in sorted(found.killed.items()))


if __name__ == "__main__":
    sys.exit(main())
