"""The encryption of a room can be raised, and never lowered."""

from __future__ import annotations

import pytest

from sublet.protocol.ezagent.sealing.levels import Encryption, encryption_of, is_raise, strongest


@pytest.mark.parametrize(
    ("value", "held", "may"),
    [
        ("members", None, True),
        ("transport_only", None, True),
        ("members", "transport_only", True),
        ("members", "members", True),
        ("transport_only", "members", False),
        ("none", "transport_only", False),
        (None, "members", False),
        (["members"], None, False),
        (1, None, False),
    ],
)
def test_a_value_is_as_strong_as_the_one_before_or_stronger(value: object, held: object, may: bool) -> None:
    assert is_raise(value, held) is may


def test_of_several_the_strongest_counts() -> None:
    assert strongest(["transport_only", "members", "transport_only", "other", None]) is Encryption.MEMBERS
    assert strongest([]) is strongest(["other"]) is Encryption.TRANSPORT_ONLY
    assert encryption_of("Members") is None
