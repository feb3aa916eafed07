"""A mask against a plain telling of the same rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.policy.guardrail.mask import MAX_FIELD_CHARS, MAX_FIELDS, Mask
from sublet.protocol.errors import LocalCode, SubletError

NAMES = st.sampled_from(["a", "b", "0", "1", "x/y", "~"])
VALUES = st.recursive(
    st.integers(0, 9), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)
PATHS = st.lists(st.lists(NAMES | st.just("*"), min_size=1, max_size=3), min_size=1, max_size=3)


def leaves(value: Any, place: tuple[str, ...] = ()) -> set[tuple[tuple[str, ...], Any]]:
    """Return every scalar that has a name, by what leads to it; arrays' items by what they are."""
    if isinstance(value, dict):
        return {one for name, item in value.items() for one in leaves(item, (*place, name))}
    if isinstance(value, list):
        return {one for index, item in enumerate(value) for one in leaves(item, (*place, str(index)))}
    return {(place, value)}


@given(VALUES, PATHS)
def test_exactly_the_scalars_that_a_field_leads_to_are_kept(value: Any, paths: list[list[str]]) -> None:
    if isinstance(value, int):
        return
    fields = tuple("/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in path) for path in paths)
    wanted = [
        scalar
        for place, scalar in leaves(value)
        if any(
            len(path) <= len(place) and all(part in (name, "*") for part, name in zip(path, place, strict=False))
            for path in paths
        )
    ]
    assert sorted(scalar for _, scalar in leaves(Mask(fields).kept(value))) == sorted(wanted)


@pytest.mark.parametrize(
    ("fields", "possible"),
    [
        (("/a",) * 256, True),
        (("/a",) * 257, False),
        ((), False),
        (("/" + "a" * 499,), True),
        (("/" + "a" * 500,), False),
        (("a",), False),
        (("/a", "b"), False),
    ],
)
def test_bounds_of_a_mask(fields: tuple[str, ...], possible: bool) -> None:
    assert (MAX_FIELDS, MAX_FIELD_CHARS) == (256, 500)
    if possible:
        assert Mask(fields).fields == fields
        return
    with pytest.raises(SubletError) as refused:
        Mask(fields)
    assert refused.value.code is LocalCode.INVALID_ARGUMENT
