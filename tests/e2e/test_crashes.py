"""Kills at journal writes: a sample of the matrix that ``make soak`` runs as a whole (DESIGN 4.10, cases C21, C23)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from support.crashes import Case, Scene, cases, crash_scene, under_way

SEED = 7
SAMPLE = 16
"""Cases taken from the matrix, at about five seconds each."""
UNDER_WAY = 4
"""Kills of the lender's daemon alone among them that the work has to get over."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with crash_scene(tmp_path_factory.mktemp("crash")) as made:
        yield made


@pytest.fixture(scope="module")
def sample(scene: Scene) -> list[Case]:
    """Cases of the matrix in an order that is the same every time, with all its victims among them."""
    chosen, under = cases(scene), under_way(scene)
    random.Random(SEED).shuffle(chosen)
    random.Random(SEED).shuffle(under)
    by_victims = {case.victims: case for case in reversed(chosen)}
    return list(dict.fromkeys([*by_victims.values(), *under[:UNDER_WAY], *chosen]))[:SAMPLE]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", range(SAMPLE))
def test_what_is_killed_comes_back_clean_and_tells_the_truth(scene: Scene, sample: list[Case], number: int) -> None:
    outcome = scene.run(sample[number])

    assert outcome.wrong == [], f"{outcome.case} ({outcome.label}): {outcome.state} {outcome.code}"
