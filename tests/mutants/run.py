"""``make mutants``: change what decides, and see that a test notices.

    make mutants                                     a seeded sample; ends within 8 minutes on two cores
    make mutants ARGS="--all"                        every mutant; takes hours, and goes on where it was stopped
    make mutants ARGS="--all --seconds 1800"         no longer than this; the next run goes on
    make mutants ARGS="--seed other --sample 200"    another sample
    make mutants ARGS="--all policy/globs.py"        every mutant of some files, or of all below a directory
    make mutants ARGS="--all policy/globs.py --tests tests/policy/test_globs.py"    with these tests alone, quickly

mutmut's operators change one place of one function; the tests that call that function run in a fork, where the changed
code has taken the place of the loaded (``swapping``). What is outside of functions is imported anew. Who survives the
tests of its own place (``decides``) is tried with those of all other places that start no program. A mutant that
survives these is killed by a better test, or listed with its reason in ``explained.toml``. A test that fails without a
change, or takes long, kills nothing here.

What ``--all`` has shown is kept (``kept``): the next run tries only what changed since. With ``--tests``, only who was
killed is kept.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Collection, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from mutants.anew import run_anew
from mutants.decides import ROOT, folders_of_tests, further_tests, modules
from mutants.explained import load
from mutants.kept import PLACE, Kept
from mutants.plugin import Plan, collect_and_run
from mutants.sampling import count, sample

SAMPLE: Final = 240
SEED: Final = "sublet"
DEADLINE_SECONDS: Final = 450.0
"""How long a sample may go on: what is left then is told, and fails the run."""
MOST_EXPLAINED: Final = 20
"""One in so many mutants may be explained instead of killed."""
LIBRARIES: Final = (
    "pydantic",
    "anyio._backends._asyncio",
    "asyncssh",
    "nacl.signing",
    "structlog",
    "hypothesis",
    "re2",
    "cryptography",
    "httpx",
    "starlette",
)
"""What takes long to import, and is there before each fork that imports our modules anew."""


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="make mutants", description="Change what decides; see that a test notices.")
    parser.add_argument("places", nargs="*", metavar="FILE", help="below src/sublet; all that decides by default")
    parser.add_argument("--all", action="store_true", help="every mutant instead of a sample")
    parser.add_argument("--sample", type=int, default=SAMPLE, metavar="N", help=f"how many, {SAMPLE} by default")
    parser.add_argument("--seed", default=SEED, help="which sample")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, metavar="N", help="begin no mutant after so long")
    parser.add_argument("--kept", type=Path, default=PLACE, metavar="DIR", help="where the results of --all are kept")
    parser.add_argument("--tests", action="append", default=[], metavar="FILE", help="only with these tests, quickly")
    parser.add_argument("--anew", action="store_true", help="try again also what is kept")
    asked = parser.parse_args()
    began = time.monotonic()
    os.chdir(ROOT)
    files = [file for file in modules() if _asked_for(file, asked.places)]
    counts = count(files, asked.workers)
    total = sum(counts.values())
    mutants = sample(counts, total if asked.all else asked.sample, asked.seed, asked.workers)
    seconds = asked.seconds or (float("inf") if asked.all else DEADLINE_SECONDS)
    plan = Plan(mutants, asked.workers, began + seconds, kept=_kept(asked, files), in_part=bool(asked.tests))
    if not asked.anew:
        plan.recall()
    known = f", {plan.known} of which are known from before" if plan.known else ""
    print(f"{total} mutants of {len(counts)} modules; {len(mutants)} are tried{known}", flush=True)
    folders = folders_of_tests(files if asked.all else (mutant.file for mutant in mutants))
    if plan.left():
        plan = _tried(plan, asked.tests or folders)
    if _doubtful(plan) and not asked.tests:
        _try_further(plan, further_tests(folders))
    if asked.all:
        print("\n".join(of_modules(plan)))
    code = tell(plan)
    times = os.times()
    print(f"{time.monotonic() - began:.0f} s, and {sum(times[:4]):.0f} s of processor time")
    print(last_line(plan))
    return code


def _asked_for(file: str, places: Sequence[str]) -> bool:
    return not places or any(file == place or file.startswith(place.rstrip("/") + "/") for place in places)


def _kept(asked: argparse.Namespace, files: Sequence[str]) -> Kept | None:
    return Kept(asked.kept.absolute(), folders_of_tests(files)) if asked.all else None


def _tried(plan: Plan, tests: Sequence[str]) -> Plan:
    done = _apart(plan, tests)
    for library in LIBRARIES:
        importlib.import_module(library)
    run_anew(done)
    return done


def _doubtful(plan: Plan) -> list[int]:
    left = set(survivors(plan))
    return [number for number in plan.doubtful() if number in left]


def _try_further(plan: Plan, tests: Sequence[str]) -> None:
    """Try who survived the tests of its own place with the quick tests of all others."""
    numbers = _doubtful(plan)
    mutants = [plan.mutants[number] for number in numbers]
    done = _tried(Plan(mutants, plan.workers, plan.deadline, kept=plan.kept, further=True), tests)
    for number, survived in done.results.items():
        plan.results[numbers[number]] = survived
        plan.chosen.setdefault(numbers[number], []).extend(done.chosen.get(number, ()))
        if number not in done.untested:
            plan.untested.discard(numbers[number])


def _apart(plan: Plan, folders: Sequence[str]) -> Plan:
    """Run in a process of its own what needs our modules to be imported."""
    receiver, sender = get_context("fork").Pipe(duplex=False)
    process = get_context("fork").Process(target=_collected, args=(plan, folders, sender))
    process.start()
    sender.close()
    try:
        done: Plan = receiver.recv()
    except EOFError:
        sys.exit("mutants: the tests could not be run; run them with pytest to see why")
    process.join()
    return done


def _collected(plan: Plan, folders: Sequence[str], sender: object) -> None:
    sys.stdout.flush()
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    collect_and_run(plan, folders)
    sender.send(plan)  # type: ignore[attr-defined]


def tell(plan: Plan) -> int:
    """Print who survived without being explained, and return the exit code."""
    left = survivors(plan)
    for number in left:
        mutant = plan.mutants[number]
        reached = "no test reaches it" if number in plan.untested else f"{len(plan.chosen[number])} tests pass"
        print(f"\n{mutant.file}, {mutant.function or 'module'}: {reached}\n  - {mutant.before}\n  + {mutant.after}")
    explained = sum(survived for survived in plan.results.values()) - len(left)
    missing = len(plan.mutants) - len(plan.results)
    killed = sum(not survived for survived in plan.results.values())
    print(f"\n{killed} killed, {explained} explained, {len(left)} survived, {missing} not run in time")
    return 1 if left or missing or explained * MOST_EXPLAINED > len(plan.mutants) else 0


def of_modules(plan: Plan) -> list[str]:
    """Return a line for each module, in the order of the plan."""
    left = set(survivors(plan))
    numbers: dict[str, list[int]] = {}
    for number, mutant in enumerate(plan.mutants):
        numbers.setdefault(mutant.file, []).append(number)
    return [_of_module(file, plan, own, left) for file, own in numbers.items()]


def _of_module(file: str, plan: Plan, numbers: Sequence[int], left: Collection[int]) -> str:
    tried = [number for number in numbers if number in plan.results]
    lived = sum(number in left for number in tried)
    explained = sum(plan.results[number] for number in tried) - lived
    said = f"{file}: {len(tried) - lived - explained} of {len(numbers)} killed"
    parts = ((explained, "explained"), (lived, "survived"), (len(numbers) - len(tried), "not run"))
    return ", ".join([said, *(f"{amount} {what}" for amount, what in parts if amount)])


def survivors(plan: Plan) -> list[int]:
    """Return the mutants that survived and are not explained."""
    known = {(row.file, row.mutation) for row in load()}
    return [
        number
        for number, survived in sorted(plan.results.items())
        if survived and (plan.mutants[number].file, plan.mutants[number].name) not in known
    ]


def last_line(plan: Plan) -> str:
    """Return how many were killed or explained."""
    return f"{len(plan.results) - len(survivors(plan))} of {len(plan.mutants)} killed or explained"


if __name__ == "__main__":
    sys.exit(main())
