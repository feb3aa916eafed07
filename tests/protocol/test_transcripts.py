"""What both cores of a delegation do, step by step, in schedules that are kept as they were."""

from __future__ import annotations

import pytest

from support.delegation_model.transcript import PLACE, SEEDS, WEATHERS, transcript


@pytest.mark.parametrize(("name", "seed"), [(name, seed) for name, seeds in SEEDS.items() for seed in seeds])
def test_each_step_is_as_it_was(name: str, seed: int) -> None:
    kept = (PLACE / f"{name}-{seed}.txt").read_text(encoding="utf-8").splitlines()
    assert transcript(seed, WEATHERS[name]) == kept, "read what has changed, then draw them anew (transcript.py)"
