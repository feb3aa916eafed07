"""Texts by pycrdt: edits by characters, and panics of the library as ordinary errors."""

from __future__ import annotations

import pytest

from sublet.messaging.backends.pycrdt_text import PycrdtTexts
from sublet.protocol.ezagent.yjs.decode import decode_update

SMILE = "\U0001f600"


def test_positions_are_characters() -> None:
    one, other = PycrdtTexts().open("body", "content"), PycrdtTexts().open("body", "content")
    updates = [one.edit(7, 0, 0, f"a{SMILE}\u00e9b", {"at": 1}), one.edit(7, 1, 3, "x", {"at": 2})]
    for update in updates:
        other.apply(update)
    assert one.value == other.value == "axb"
    assert [decode_update(update).client for update in updates] == [7, 7]


def test_a_panic_is_an_error() -> None:
    text = PycrdtTexts().open("body", "content")
    text.edit(7, 0, 0, f"a{SMILE}b", {"at": 1})
    # A value within a text, in the middle of a character: from then on the library counts otherwise than its readers.
    text.apply(bytes([1, 1, 9, 0, 8 | 64, 7, 1, 1, 126, 0]))
    with pytest.raises(ValueError, match="has failed"):
        text.edit(8, 2, 3, "", {"at": 2})
