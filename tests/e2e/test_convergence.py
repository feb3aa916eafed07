"""Short random histories with each kind of fault: what was acknowledged is on every member, equal, in the same order.

``benchmarks/convergence.py`` plays long ones, and many of them; with ``--only KIND --seed S --seeds 1 --operations 24
--daemons 3`` it plays one of these again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from support.histories.generating import generate
from support.histories.kept import CODE_CHARS, Results, State, state
from support.histories.kinds import KINDS
from support.histories.playing import play
from support.histories.promises import Promise, Promises, Shown, Views
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


def _shown(*bodies: str) -> Shown:
    refs = [{"ref_id": f"r{number}", "body": body} for number, body in enumerate(bodies)]
    return Shown(refs, "Work", {}, {}, {}, {})


async def test_what_nobody_shows_any_more_is_released_and_no_room_is_looked_at_in_vain() -> None:
    promises = Promises()
    for number, body in enumerate(("here", "elsewhere", "gone")):
        promises.make(Promise(number, "room", ("body", f"r{number}"), body), "d1~0")
    promises.make(Promise(3, "closed", ("body", "r0"), "nobody knows"), "d1~0")
    promises.make(Promise(4, "other", ("body", "r0"), "said by another"), "d2~0")
    looked = list[tuple[int, str]]()

    async def look(who: int, room: str) -> Shown | None:
        looked.append((who, room))
        return None if room == "closed" else _shown("here", ("old", "elsewhere")[who], "old")

    await promises.reconsider({"d1~0": "d1~0-"}, Views(look, ["room", "closed", "other"], [0, 1]))
    assert looked == [(0, "room"), (1, "room"), (0, "closed"), (1, "closed")]
    assert promises.writers() == {"d1~0-", "d1~0", "d2~0"}, "of a closed room nothing is known"
    values = [promises.value("room", ("body", f"r{number}")) for number in range(3)]
    assert values == [["here"], ["elsewhere"], []]
    assert promises.value("closed", ("body", "r0")) == ["nobody knows"]


def test_a_history_is_played_again_by_what_it_is_told_as() -> None:
    history = generate("everything", 4, OPERATIONS, DAEMONS)
    assert read_script(history.script()) == history


def _results(path: Path, asked: int = OPERATIONS, processes: bool = False, code: str = "a") -> Results:
    return Results(path, asked, processes, State(f"commit {code}", code))


def test_what_came_of_histories_is_kept_for_later_runs(tmp_path: Path) -> None:
    history, path = generate("kills", 4, OPERATIONS, DAEMONS), tmp_path / "results.jsonl"
    assert _results(path).all() == []
    assert _results(path).needs(history)
    _results(path).keep(history, Verdict(7, 2, seconds=0.53), 1.26)
    (kept,) = _results(path).all()
    assert (kept.kind, kept.acknowledged, kept.seconds, kept.worked, kept.commit) == ("kills", 7, 0.5, 1.3, "commit a")
    assert kept.right
    assert not _results(path).needs(history), "of this code it is there"
    assert _results(path, code="b").needs(history)
    assert _results(path, code="b").all() == [], "of other code nothing is known"
    assert not _results(path, code="b").needs(history, older=True)
    assert _results(path, code="b").all(older=True) == [kept]
    assert _results(path).needs(generate("kills", 5, OPERATIONS, DAEMONS))
    assert _results(path, asked=500).needs(history)
    assert _results(path, processes=True).needs(history)


def test_a_history_that_was_not_right_is_played_again_once_the_code_has_changed(tmp_path: Path) -> None:
    history, path = generate("kills", 4, OPERATIONS, DAEMONS), tmp_path / "results.jsonl"
    _results(path).keep(history, Verdict(7, 2, promises={("sent", 3)}, differ=["one"], errors=["two"]), 1.0)
    assert [(one.lost, one.differed, one.errors, one.right) for one in _results(path).all()] == [(1, True, 1, False)]
    assert not _results(path).needs(history)
    assert _results(path, code="b").needs(history)
    assert _results(path, code="b").needs(history, older=True)
    _results(path, code="b").keep(history, Verdict(7, 2, seconds=1.0), 1.0)
    kept = _results(path).all(older=True)
    assert [(one.code, one.right) for one in kept] == [("b", True)], "it takes the other's place"


def test_the_file_of_results_does_not_depend_on_the_order_in_which_histories_were_played(tmp_path: Path) -> None:
    histories = [generate(kind, seed, OPERATIONS, DAEMONS) for kind in ("clocks", "kills") for seed in (10, 9)]
    for name, order in (("one", histories), ("two", histories[::-1])):
        for history in order:
            _results(tmp_path / name).keep(history, Verdict(seconds=1.0), 1.0)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["one", "two"]


def test_the_code_that_was_played_has_a_name() -> None:
    in_process, with_daemons = state(processes=False), state(processes=True)
    assert len(in_process.code) == len(with_daemons.code) == CODE_CHARS
    assert in_process.code != with_daemons.code
