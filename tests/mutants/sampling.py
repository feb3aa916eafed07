"""Chooses mutants: a seeded sample of all modules that decide, or all of some files."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random

from mutants.decides import PACKAGE
from mutants.operators import Mutant, MutatedModule


def count(files: Sequence[str], workers: int) -> dict[str, int]:
    """Return how many mutants each file has."""
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        return dict(zip(files, pool.map(_count, files), strict=True))


def sample(counts: dict[str, int], number: int, seed: str, workers: int) -> list[Mutant]:
    """Return this many mutants, each as likely as any other, in the order of files."""
    everything = [(file, index) for file, amount in counts.items() for index in range(amount)]
    chosen = sorted(Random(seed).sample(everything, min(number, len(everything))))
    wanted: dict[str, list[int]] = {}
    for file, index in chosen:
        wanted.setdefault(file, []).append(index)
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        return [mutant for made in pool.map(_make, wanted.items()) for mutant in made]


def _count(file: str) -> int:
    return len(MutatedModule(PACKAGE, file))


def _make(wanted: tuple[str, list[int]]) -> list[Mutant]:
    module = MutatedModule(PACKAGE, wanted[0])
    return [module.mutant(index) for index in wanted[1]]
