"""``make mutants``: change what decides, and see that a test notices.

    make mutants                                     a seeded sample; ends within 8 minutes on two cores
    make mutants ARGS="--told"                       what is known of every module, without trying anything
    make mutants ARGS="--all"                        every mutant; takes hours, and goes on where it was stopped
    make mutants ARGS="--all --seconds 1800"         no longer than this; the next run goes on
    make mutants ARGS="--survivors"                  who survived before and is not explained, once more
    make mutants ARGS="--seed other --sample 200"    another sample
    make mutants ARGS="--all --near policy"          without trying survivors with the tests of all other places
    make mutants ARGS="--all policy/globs.py"        every mutant of some files, or of all below a directory
    make mutants ARGS="--all policy/globs.py --tests tests/policy/test_globs.py"    with these tests alone, quickly

mutmut's operators change one place of one function; the tests that call that function run in a fork, where the changed
code has taken the place of the loaded (``swapping``). What is outside of functions is imported anew. Who survives the
tests of its own place (``decides``) is tried with those of all other places that start no program. A mutant that
survives these is killed by a better test, or listed with its reason in ``explained.toml``. A test that fails without a
change, or takes long, kills nothing here.

What ``--all`` has shown is kept in the repository (``kept``): the next run tries only what has no result yet, or
another text of its module than then. With ``--tests``, only who was killed is kept.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from mutants.anew import run_anew
from mutants.decides import ROOT, folders_of_tests, further_tests, modules
from mutants.explained import load
from mutants.kept import PLACE, Kept, Shown
from mutants.plugin import Plan, collect_and_run
from mutants.sampling import choose, make, numbers, sample
from mutants.told import Amounts, amounts, table

SAMPLE: Final = 240
SEED: Final = "sublet"
DEADLINE_SECONDS: Final = 450.0
"""How long a sample may go on: what is left then is told, and fails the run."""
MOST_EXPLAINED: Final = 20
"""One in so many mutants may be explained instead of killed."""


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="make mutants", description="Change what decides; see that a test notices.")
    parser.add_argument("places", nargs="*", metavar="FILE", help="below src/sublet; all that decides by default")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="every mutant instead of a sample, unless it is known")
    which.add_argument("--anew", action="store_true", help="every mutant, known or not")
    which.add_argument("--survivors", action="store_true", help="who survived before and is not explained")
    which.add_argument("--told", action="store_true", help="try nothing, and tell what is known")
    parser.add_argument("--sample", type=int, default=SAMPLE, metavar="N", help=f"how many, {SAMPLE} by default")
    parser.add_argument("--seed", default=SEED, help="which sample")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, metavar="N", help="begin no mutant after so long")
    parser.add_argument("--kept", type=Path, default=PLACE, metavar="DIR", help="where results are kept")
    parser.add_argument("--near", action="store_true", help="without the tests of other places, which takes longer")
    parser.add_argument("--tests", action="append", default=[], metavar="FILE", help="only with these tests, quickly")
    asked = parser.parse_args()
    os.chdir(ROOT)
    # Each module that is imported anew would be compiled anew, if the environment has its way.
    sys.dont_write_bytecode = False
    files = [file for file in modules() if _asked_for(file, asked.places)]
    if asked.told:
        _tell_kept(Kept(asked.kept.absolute()), numbers(files, asked.workers))
        return 0
    if asked.all or asked.anew or asked.survivors:
        return _try_all(asked, files)
    return _try_sample(asked, numbers(files, asked.workers))


def _try_sample(asked: argparse.Namespace, there: Mapping[str, Sequence[int]]) -> int:
    began = time.monotonic()
    mutants = make(sample(there, asked.sample, asked.seed), asked.workers)
    plan = Plan(mutants, asked.workers, began + (asked.seconds or DEADLINE_SECONDS), in_part=bool(asked.tests))
    print(f"{_total(there)} mutants of {len(there)} modules; {len(mutants)} are tried", flush=True)
    plan = _tried(plan, asked.tests or folders_of_tests(mutant.file for mutant in mutants))
    if not asked.tests:
        _try_further(plan, survivors(plan))
    code = tell(plan)
    _tell_times(began)
    print(last_line(plan))
    return code


def _try_all(asked: argparse.Namespace, files: Sequence[str]) -> int:
    """Try what has no result, and keep what it shows."""
    began, kept = time.monotonic(), Kept(asked.kept.absolute())
    known = {file: kept.known(file) for file in files}
    if asked.survivors:
        there, mutants = choose({file: (True, _doubted(file, known[file])) for file in files}, asked.workers)
    else:
        there, mutants = choose({file: (False, () if asked.anew else known[file]) for file in files}, asked.workers)
    for file, some in there.items():
        kept.counted(file, len(some))
        known[file] = {number: one for number, one in known[file].items() if number in set(some)}
    deadline = began + (asked.seconds or float("inf"))
    plan = Plan(mutants, asked.workers, deadline, kept=kept, in_part=bool(asked.tests))
    print(f"{_total(there)} mutants of {len(there)} modules; {len(mutants)} are tried", flush=True)
    if mutants:
        plan = _tried(plan, asked.tests or folders_of_tests(there))
    if not asked.tests and not asked.near:
        plan = _with_doubted(plan, {file: _doubted(file, some, further=False) for file, some in known.items()})
        _try_further(plan, survivors(plan))
    tell(plan)
    _tell_times(began)
    assert plan.kept is not None
    plan.kept.write()
    return _tell_kept(plan.kept, there)


def _doubted(file: str, known: Mapping[int, Shown], *, further: bool = True) -> list[int]:
    """Return who survived and is not explained; without ``further``, only who was not tried with all tests."""
    explained = _explained()
    return [
        number
        for number, one in known.items()
        if one.survived and (file, one.name) not in explained and (further or not one.further)
    ]


def _with_doubted(plan: Plan, doubted: Mapping[str, Sequence[int]]) -> Plan:
    """Add who is known to have survived the tests of its own place."""
    there = {(mutant.file, mutant.number) for mutant in plan.mutants}
    wanted = {file: [number for number in some if (file, number) not in there] for file, some in doubted.items()}
    more = make({file: some for file, some in wanted.items() if some}, plan.workers)
    added = range(len(plan.mutants), len(plan.mutants) + len(more))
    plan.results.update(dict.fromkeys(added, True))
    plan.chosen.update({number: [] for number in added})
    return replace(plan, mutants=[*plan.mutants, *more])


def _tell_kept(kept: Kept, there: Mapping[str, Sequence[int]]) -> int:
    """Print what is known of these modules, and return the exit code."""
    explained = _explained()
    known = {file: amounts(kept, file, some, explained) for file, some in there.items()}
    whole = Amounts()
    for file, own in known.items():
        whole.add(own)
        for name in own.names:
            print(f"survives: {file} {name}")
    for stranger in kept.strangers(modules()):
        print(f"of no module that decides: {stranger}")
    print("\n" + "\n".join(table(kept, known)))
    print(f"{whole.killed + whole.explained} of {whole.mutants} killed or explained")
    return 1 if whole.survived or whole.left or whole.explained * MOST_EXPLAINED > whole.mutants else 0


def _explained() -> set[tuple[str, str]]:
    return {(row.file, row.mutation) for row in load()}


def _total(there: Mapping[str, Sequence[int]]) -> int:
    return sum(map(len, there.values()))


def _tell_times(began: float) -> None:
    times = os.times()
    print(f"{time.monotonic() - began:.0f} s, and {sum(times[:4]):.0f} s of processor time")


def _asked_for(file: str, places: Sequence[str]) -> bool:
    return not places or any(file == place or file.startswith(place.rstrip("/") + "/") for place in places)


def _tried(plan: Plan, tests: Sequence[str]) -> Plan:
    done = _apart(plan, tests)
    run_anew(done)
    return done


def _try_further(plan: Plan, numbers: Sequence[int]) -> None:
    """Try who survived the tests of its own place with the quick tests of all others."""
    mutants = [plan.mutants[number] for number in numbers]
    if not mutants or time.monotonic() > plan.deadline:
        return
    others = further_tests(folders_of_tests(mutant.file for mutant in mutants))
    done = _tried(Plan(mutants, plan.workers, plan.deadline, kept=plan.kept, further=True), others)
    plan.kept = done.kept
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


def survivors(plan: Plan) -> list[int]:
    """Return the mutants that survived and are not explained."""
    known = _explained()
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
