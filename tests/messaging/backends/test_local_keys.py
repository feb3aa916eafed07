"""Who takes what comes is found by key, as Zenoh would find it, but for chunks that begin with ``@``."""

from __future__ import annotations

import pytest

from sublet.messaging.backends.local_keys import LocalKeys, from_wire, to_wire

ROOM = "01a2212b-1000-7167-9394-011daa814786"


@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [
        ("ezagent/r/root", "ezagent/r/root", True),
        ("ezagent/r/root", "ezagent/r/root/x", False),
        ("ezagent/r/index/*/updates", "ezagent/r/index/2026-11/updates", True),
        ("ezagent/r/index/*/updates", "ezagent/r/index/updates", False),
        ("ezagent/r/content/*", "ezagent/r/content/a/b", False),
        ("ezagent/**", "ezagent/r/tree/@a:b", True),
        ("ezagent/**", "ezagent", False),
        ("ezagent/r/*/x", "ezagent/r/@a:b/x", True),
        ("ezagent/r/*", "ezagent/r/*", True),
        ("ezagent/r/x", "ezagent/r/*", False),
        ("other/**", "ezagent/r", False),
    ],
)
def test_patterns(pattern: str, key: str, *, matches: bool) -> None:
    keys = LocalKeys[str]()
    keys.add(pattern, "taker")
    assert keys.of(key) == (["taker"] if matches else [])


def test_what_is_taken_away_is_gone_and_leaves_nothing_behind() -> None:
    keys = LocalKeys[int]()
    ends = [keys.add(f"ezagent/{ROOM}/{name}", number) for number, name in enumerate(("root", "root", "*", "**"))]
    assert sorted(keys.of(f"ezagent/{ROOM}/root")) == [0, 1, 2, 3]
    ends[0]()
    ends[0]()
    assert sorted(keys.of(f"ezagent/{ROOM}/root")) == [1, 2, 3]
    for end in ends:
        end()
    assert keys.of(f"ezagent/{ROOM}/root") == []
    assert keys._root.below == {}


@pytest.mark.parametrize("key", ["ezagent/@a:b/inbox", "ezagent/r/ephemeral/presence/@a:b", "ezagent/r/root"])
def test_keys_go_over_a_link_without_chunks_that_no_pattern_matches(key: str) -> None:
    assert "/@" not in to_wire(key)
    assert from_wire(to_wire(key)) == key
