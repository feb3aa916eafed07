"""Short random histories with each kind of fault: what was acknowledged is on every member, equal, in the same order.

``benchmarks/convergence.py`` plays long ones, and many of them; with ``--only KIND --seed S --seeds 1 --operations 24
--daemons 3`` it plays one of these again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from support.histories.generating import generate
from support.histories.kinds import KINDS
from support.histories.playing import play
from support.histories.staging import in_this_process

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

OPERATIONS: Final = 24
DAEMONS: Final = 3
PATIENCE_SECONDS: Final = 30.0
"""Longer than daemons may take, since what else runs here is not theirs: a test says that it comes at all."""
FORLORN_SECONDS: Final = 8.0
"""How long something is waited for that is known not to come."""
SEEDS: Final = {
    "nothing": 1,
    "kills": 1,
    "partitions": 1,
    "rollbacks": 1,
    "full disks": 1,
    "copies": 1,
    "junk answers": 1,
    "clocks": 1,
    "changes while away": 1,
    "malformed refs": 1,
    "refs ahead": 1,
    "deleted rows": 1,
}
NOT_YET: Final = {
    "deleted rows": "rows that are missing are not noticed, and never fetched again",
}
"""Faults after which something is not right today, and what: each row is to be taken out once its history passes."""
LONG: Final = {
    "many while away": "takes a minute",
    "silent answers": "takes seconds for each question",
    "forced rooms": "takes a minute",
    "declarations": "takes a minute",
    "stopped reader": "takes seconds for each message",
    "flipped bits": "what is hit depends on where SQLite has put it",
    "cut database": "what is hit depends on where SQLite has put it",
    "everything": "is all of these",
}
"""Faults that only the benchmark plays, and why."""


def expected(kind: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.xfail(strict=True, reason=NOT_YET[kind])] if kind in NOT_YET else []


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=expected(kind)) for kind in SEEDS])
async def test_what_was_acknowledged_is_shown_to_every_member_alike(kind: str, tmp_path: Path) -> None:
    history = generate(kind, SEEDS[kind], OPERATIONS, DAEMONS)
    async with in_this_process(tmp_path, history) as stage:
        verdict = await play(history, stage, FORLORN_SECONDS if kind in NOT_YET else PATIENCE_SECONDS, forcing=True)
    assert verdict.right, f"{verdict}\n\n{history.script()}"


def test_every_fault_is_played_here_or_at_length() -> None:
    assert {**SEEDS, **LONG}.keys() == KINDS.keys()
    assert not SEEDS.keys() & LONG.keys()
    assert NOT_YET.keys() <= SEEDS.keys()
