"""A schema's steps lead from the oldest version to today's one by one."""

from __future__ import annotations

import pytest

from sublet.migrations.schema import Migration, Schema, Tables


def nothing(_: Tables) -> None:
    """Change nothing."""


@pytest.mark.parametrize("steps", [(3,), (2, 4), (3, 2), (2, 3, 4), (2, 2, 3)])
def test_steps_with_a_gap_or_out_of_order_are_no_schema(steps: tuple[int, ...]) -> None:
    if steps == (3,):
        assert Schema("it", 3, (), (Migration(3, "", nothing),)).oldest == 2
        return
    with pytest.raises(ValueError, match="one by one"):
        Schema("it", 3, (), tuple(Migration(to, "", nothing) for to in steps))


def test_the_steps_that_a_version_still_needs() -> None:
    schema = Schema("it", 5, (), tuple(Migration(to, "", nothing) for to in (3, 4, 5)))
    assert schema.oldest == 2
    assert [[one.to for one in schema.steps_from(version)] for version in (2, 3, 4, 5)] == [[3, 4, 5], [4, 5], [5], []]
