"""What people are told of clocks that differ."""

from __future__ import annotations

import pytest

from sublet.daemon.rooms.clocks import clock_differs, clocks_that_differ

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("ahead_ms", "said"),
    [
        (40 * DAY_MS, "40 days ahead of"),
        (-40 * DAY_MS, "40 days behind"),
        (-3 * 3_600_000, "3 hours behind"),
        (150_000, "2 minutes ahead of"),
        (61_000, "61 seconds ahead of"),
        (90_000_000, "25 hours ahead of"),
    ],
)
def test_by_how_much_is_said_in_one_unit(ahead_ms: int, said: str) -> None:
    assert clock_differs("the clock of bob", ahead_ms) == f"the clock of bob is {said} this machine's"


def test_where_all_clocks_differ_alike_ours_is_thought_of() -> None:
    names = {"n1": "bob", "n2": "eve", "n3": "ann"}
    one = clocks_that_differ(names, {"n1": DAY_MS * 3, "gone": DAY_MS})
    assert set(one) == {"bob"}
    assert "both machines" in str(one["bob"])
    alike = clocks_that_differ(names, {"n1": DAY_MS * 3, "n2": DAY_MS * 3})
    assert "this machine's that is wrong" in str(alike["eve"])
    apart = clocks_that_differ(names, {"n1": DAY_MS * 3, "n2": -DAY_MS * 3})
    assert "both machines" in str(apart["bob"])
