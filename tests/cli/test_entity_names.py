"""Entities as people know them, and what they type for one."""

from __future__ import annotations

import pytest

from sublet.cli.rendering.entity_names import EntityNames
from sublet.protocol.errors import LocalCode, SubletError

NAMES = EntityNames("@human:node-me", {"node-bob": "bob"})


@pytest.mark.parametrize(
    ("entity", "shown"),
    [
        ("@human:node-me", "you"),
        ("@mcp:node-me", "mcp@here"),
        ("@human:node-bob", "bob"),
        ("@reviewer:node-bob", "reviewer@bob"),
        ("@human:node-else", "human@node-else"),
        ("@human:node-somebody-else", "human@node-somebod…"),
    ],
)
def test_an_entity_is_shown_by_the_peer_that_it_is_of(entity: str, shown: str) -> None:
    assert NAMES.short(entity) == shown


def test_a_name_that_would_steer_a_terminal_is_shown_without_that() -> None:
    assert "\x1b" not in NAMES.short("@a\x1b[2J:node-bob") + NAMES.short("\x1b[2J")


@pytest.mark.parametrize(
    ("given", "entity"),
    [
        ("you", "@human:node-me"),
        ("bob", "@human:node-bob"),
        ("reviewer@bob", "@reviewer:node-bob"),
        ("mcp@here", "@mcp:node-me"),
        ("@human:node-else", "@human:node-else"),
        ("@reviewer:bob", "@reviewer:node-bob"),
    ],
)
def test_what_is_typed_for_an_entity(given: str, entity: str) -> None:
    assert NAMES.entity(given) == entity


@pytest.mark.parametrize("given", ["", "carol", "reviewer@carol", "@bob"])
def test_nobody_is_told_as_such(given: str) -> None:
    with pytest.raises(SubletError) as refused:
        NAMES.entity(given)
    assert refused.value.code is LocalCode.NOT_FOUND
