"""Chooses mutants: a seeded sample of all modules that decide, or all of some files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random

from mutants.decides import PACKAGE
from mutants.operators import Mutant, MutatedModule


def numbers(files: Sequence[str], workers: int) -> dict[str, list[int]]:
    """Return the numbers of each file's mutants."""
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        return dict(zip(files, pool.map(_numbers, files), strict=True))


def choose(
    wanted: Mapping[str, tuple[bool, Collection[int]]], workers: int
) -> tuple[dict[str, list[int]], list[Mutant]]:
    """Read each module once, and return the numbers of all its mutants, and some of these.

    Args:
        wanted: of each file, whether only the mutants of these numbers are made, or all others.
        workers: how many modules are read at a time.
    """
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        read = dict(zip(wanted, pool.map(_choose, wanted.items()), strict=True))
    there = {file: own for file, (own, _) in read.items()}
    return there, [mutant for _, made in read.values() for mutant in made]


def sample(there: Mapping[str, Sequence[int]], amount: int, seed: str) -> dict[str, list[int]]:
    """Return so many of these numbers, each as likely as any other, in the order of files."""
    everything = [(file, number) for file, some in there.items() for number in some]
    chosen: dict[str, list[int]] = {}
    for file, number in sorted(Random(seed).sample(everything, min(amount, len(everything)))):
        chosen.setdefault(file, []).append(number)
    return chosen


def make(wanted: Mapping[str, Sequence[int]], workers: int) -> list[Mutant]:
    """Return these mutants."""
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        return [mutant for made in pool.map(_make, wanted.items()) for mutant in made]


def _numbers(file: str) -> list[int]:
    return MutatedModule(PACKAGE, file).numbers


def _choose(wanted: tuple[str, tuple[bool, Collection[int]]]) -> tuple[list[int], list[Mutant]]:
    file, (inside, some) = wanted
    module = MutatedModule(PACKAGE, file)
    return module.numbers, [module.mutant(number) for number in module.numbers if (number in some) == inside]


def _make(wanted: tuple[str, Sequence[int]]) -> list[Mutant]:
    module = MutatedModule(PACKAGE, wanted[0])
    return [module.mutant(number) for number in wanted[1]]
