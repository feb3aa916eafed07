"""Which writes of a key a writer knew, compared with following each write to the one that it replaces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.ezagent.room.ancestry import Ancestry, KnownWrites
from sublet.protocol.ezagent.yjs.update import ItemId

OUTSIDE: ItemId = (99, 99)
Origins = dict[ItemId, ItemId | None]


@st.composite
def forests(draw: st.DrawFn) -> Origins:
    """Return writes in any order; each replaces one that was written before, nothing, or one that nobody has."""
    parents = draw(st.lists(st.integers(-2, 11), max_size=12))
    items = draw(st.permutations([(number % 3, number) for number in range(len(parents))]))
    origins: Origins = {}
    for number, parent in enumerate(parents):
        origins[items[number]] = OUTSIDE if parent == -2 else items[parent] if 0 <= parent < number else None
    return dict(draw(st.permutations(list(origins.items()))))


def replaced(origins: Origins, item: ItemId) -> set[ItemId]:
    """Follow a write to all that it replaces."""
    found: set[ItemId] = set()
    origin = origins.get(item)
    while origin is not None and origin in origins:
        found.add(origin)
        origin = origins[origin]
    return found


@given(forests())
def test_a_writer_knew_what_is_on_the_way_back_and_nothing_else(origins: Origins) -> None:
    ancestry = Ancestry(origins)
    for later in [*origins, OUTSIDE]:
        known = KnownWrites(ancestry, later, is_first=False)
        before = {earlier for earlier in [*origins, OUTSIDE] if earlier in known}
        assert before == replaced(origins, later)
        assert before == {earlier for earlier in [*origins, OUTSIDE] if ancestry.is_before(earlier, later)}


def test_known_writes_are_the_same_where_they_are_of_one_write() -> None:
    one, other = Ancestry({(1, 1): None}), Ancestry({})
    assert KnownWrites(one, (1, 1), is_first=True) == KnownWrites(other, (1, 1), is_first=True)
    assert KnownWrites(one, (1, 1), is_first=True) != KnownWrites(one, (1, 1), is_first=False)
    assert "ancestry" not in repr(KnownWrites(one, (1, 1), is_first=True))
