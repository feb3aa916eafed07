"""``make fuzz``: feed the decoders for as long as is asked, by atheris where it is installed, else by plain mutation.

    make fuzz                                   every target for five seconds
    make fuzz ARGS="--seconds 600 tar_stream"   one target for ten minutes
    make fuzz ARGS="--engine atheris --seconds 600 tar_stream"

atheris is guided by coverage and finds more; it is not part of the locked environment, since it has no wheel for every
Python: ``.venv/bin/pip install atheris`` adds it. An input that breaks a target is kept below ``.cache/fuzz``; put it
into ``tests/fuzz/seeds/TARGET/`` together with the repair, and the tests keep it out from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import subprocess
import sys
import time
import traceback
from pathlib import Path
from random import Random

from fuzz.corpus import FOUND, seeds
from fuzz.feeding import Finding, feed
from fuzz.mutation import mutated
from fuzz.targets import TARGETS


def keep(name: str, data: bytes) -> Path:
    """Write a finding down and return where."""
    path = FOUND / name / hashlib.sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def by_mutation(name: str, seconds: float, seed: int) -> int:
    """Feed mutations of the seeds for ``seconds``; return how many were fed.

    Raises:
        Finding: as ``feed``; the input is kept.
    """
    random, corpus = Random(f"{name} {seed}"), seeds(name)
    deadline, count = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        data = corpus[count] if count < len(corpus) else mutated(random.choice(corpus), random, corpus)
        try:
            feed(name, data)
        except Finding:
            print(f"{name}: kept as {keep(name, data)}", flush=True)
            raise
        count += 1
    return count


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="make fuzz", description="Feed the decoders with anything.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of: {', '.join(TARGETS)}; all by default")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each target (default: 5)")
    parser.add_argument("--seed", type=int, default=0, help="start of the random numbers (default: 0)")
    parser.add_argument("--engine", choices=["auto", "atheris", "mutation"], default="auto")
    given = parser.parse_args()
    unknown = sorted(set(given.targets) - set(TARGETS))
    if unknown:
        parser.error(f"there is no target {', '.join(unknown)}")
    names = given.targets or list(TARGETS)
    there = importlib.util.find_spec("atheris") is not None
    if given.engine == "atheris" and not there:
        print("atheris is not installed: .venv/bin/pip install atheris", file=sys.stderr)
        return 2
    if given.engine == "mutation" or not there:
        return _mutate(names, given.seconds, given.seed)
    FOUND.mkdir(parents=True, exist_ok=True)
    # libFuzzer ends its process, so each target has one of its own
    runner = [sys.executable, "-m", "fuzz.atheris_runner"]
    ends = [
        subprocess.run([*runner, name, str(given.seconds), str(given.seed)], check=False).returncode for name in names
    ]
    return int(any(ends))


def _mutate(names: list[str], seconds: float, seed: int) -> int:
    broken = 0
    for name in names:
        try:
            count = by_mutation(name, seconds, seed)
        except Finding as finding:
            broken += 1
            traceback.print_exception(finding.__cause__ or finding)
        else:
            print(f"{name}: {count:,} inputs in {seconds:g} s, nothing found", flush=True)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
