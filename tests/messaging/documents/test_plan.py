"""What an update does: an element takes each of its fields once."""

from __future__ import annotations

import pytest

from sublet.messaging.documents.plan import Located, NewEntry, put
from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.yjs.update import ANY, MAP, TYPE, Item


def field(clock: int, key: str) -> Item:
    return Item(clock, 1, ANY, None, None, (1, 0), key, ["x"])


def test_an_element_takes_each_field_once() -> None:
    entry = NewEntry((1, 0), Item(0, 1, TYPE, None, None, "timeline", None, MAP), 1, {}, set())
    entry.add(field(1, "a"))
    entry.add(field(2, "b"))
    assert entry.fields == {"a": "x", "b": "x"}
    with pytest.raises(Refused) as refused:
        entry.add(field(3, "a"))
    assert refused.value.refusal is Refusal.WRONG_SHAPE
    with pytest.raises(Refused):
        put(entry, Located((1, 0), None, ("a",), nested=False), "y", makes_map=False)
