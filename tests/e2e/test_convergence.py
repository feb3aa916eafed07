"""Short random histories with each kind of fault: what was acknowledged is on every member, equal, in the same order.

``benchmarks/convergence.py`` plays long ones, and many of them; with ``--only KIND --seed S --seeds 1 --operations 24
--daemons 3`` it plays one of these again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from support.histories.generating import generate
from support.histories.kept import CODE_CHARS, Results, code
from support.histories.kinds import KINDS
from support.histories.playing import play
from support.histories.staging import in_this_process
from support.histories.steps import read_script
from support.histories.verdict import Verdict

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

OPERATIONS: Final = 24
DAEMONS: Final = 3
PATIENCE_SECONDS: Final = 30.0
"""Longer than daemons may take, since what else runs here is not theirs: a test says that it comes at all."""
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
SCRIPTS: Final = Path(__file__).parent / "histories"
"""Histories that have failed, shortened to what it took."""
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


@pytest.mark.parametrize("kind", SEEDS)
async def test_what_was_acknowledged_is_shown_to_every_member_alike(kind: str, tmp_path: Path) -> None:
    history = generate(kind, SEEDS[kind], OPERATIONS, DAEMONS)
    async with in_this_process(tmp_path, history) as stage:
        verdict = await play(history, stage, PATIENCE_SECONDS, forcing=True)
    assert verdict.right, f"{verdict}\n\n{history.script()}"


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.txt")), ids=lambda path: path.stem)
async def test_what_random_histories_have_found_stays_mended(script: Path, tmp_path: Path) -> None:
    history = read_script(script.read_text(encoding="utf-8"))
    async with in_this_process(tmp_path, history) as stage:
        verdict = await play(history, stage, PATIENCE_SECONDS)
    assert verdict.right, str(verdict)


def test_every_fault_is_played_here_or_at_length() -> None:
    assert {**SEEDS, **LONG}.keys() == KINDS.keys()
    assert not SEEDS.keys() & LONG.keys()


def test_a_history_is_played_again_by_what_it_is_told_as() -> None:
    history = generate("everything", 4, OPERATIONS, DAEMONS)
    assert read_script(history.script()) == history


def test_what_came_of_histories_is_kept_for_later_runs(tmp_path: Path) -> None:
    history, verdict = generate("kills", 4, OPERATIONS, DAEMONS), Verdict(7, 2, promises={("sent", 3)}, seconds=0.5)
    path = tmp_path / "results.jsonl"
    assert list(Results(path, OPERATIONS, False, ["a"]).all()) == []
    Results(path, OPERATIONS, False, ["a"]).keep(history, verdict, 1.26)
    again = Results(path, OPERATIONS, False, ["a"])
    assert again.has(history)
    assert [(one.kind, one.processor_seconds, one.verdict) for one in again.all()] == [("kills", 1.3, verdict)]
    assert not again.has(generate("kills", 5, OPERATIONS, DAEMONS))
    for other in (
        Results(path, 500, False, ["a"]),
        Results(path, OPERATIONS, True, ["a"]),
        Results(path, OPERATIONS, False, ["b"]),
    ):
        assert not other.has(history), "of other code, or made otherwise"
    assert len(code()) == CODE_CHARS
