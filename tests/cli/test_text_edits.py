"""What makes one text of another, and what of that still fits beside what others have changed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.cli.commands.rooms import text_edits
from sublet.cli.commands.rooms.text_edits import Edit, carried_over, edits_between

TEXTS = st.text(alphabet="ab\n", max_size=40)
LIMIT = 64


def applied(text: str, edits: Sequence[Edit]) -> str:
    for one in reversed(edits):
        text = text[: one.index] + one.insert + text[one.end :]
    return text


@given(TEXTS, TEXTS, st.integers(1, 5))
def test_edits_lead_from_one_text_to_the_other(old: str, new: str, limit: int) -> None:
    edits = edits_between(old, new, limit)
    assert applied(old, edits) == new
    assert len(edits) <= limit
    assert all(one.end <= after.index for one, after in pairwise(edits))
    assert (old == new) is (edits == [])


def test_only_what_differs_is_touched() -> None:
    assert edits_between("one\ntwo\nthree\n", "one\ntoo\nthree\nfour\n", LIMIT) == [
        Edit(5, 1, "o"),
        Edit(14, 0, "four\n"),
    ]


def test_long_texts_that_differ_all_over_are_replaced_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_edits, "MAX_LINES_COMPARED", 2)
    assert len(edits_between("a\nb\nc\n", "x\nb\ny\n", LIMIT)) == 1


@given(TEXTS, TEXTS, TEXTS)
def test_what_both_changed_elsewhere_is_all_there(base: str, mine: str, theirs: str) -> None:
    """Carried over, my edits take out and put in the same as before."""
    edits = edits_between(base, mine, LIMIT)
    carried = carried_over(edits, edits_between(base, theirs, LIMIT))
    if carried is None:
        return
    for before, after in zip(edits, carried, strict=True):
        assert base[before.index : before.end] == theirs[after.index : after.end]
        assert before.insert == after.insert
    if theirs == base:
        assert applied(theirs, carried) == mine
    if mine == base:
        assert applied(theirs, carried) == theirs


def test_the_same_words_are_not_changed_twice() -> None:
    base = "one two three\n"
    mine = edits_between(base, "one 2 three\n", LIMIT)
    assert carried_over(mine, edits_between(base, "one zwei three\n", LIMIT)) is None
    after = carried_over(mine, edits_between(base, "zero one two three\n", LIMIT))
    assert after is not None
    assert applied("zero one two three\n", after) == "zero one 2 three\n"
