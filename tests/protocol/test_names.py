"""Names from elsewhere: one plain component of a path, or none at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.names import MAX_NAME_BYTES, MalformedName, parse_name, parse_plain_name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "/",
        "a/b",
        "../a",
        "/a",
        "a/",
        "a\0b",
        "a\nb",
        "\x1b[2J",
        "a\x7f",
        "x" * (MAX_NAME_BYTES + 1),
        "\ud8ff",
    ],
)
def test_what_is_no_component_is_refused(name: str) -> None:
    with pytest.raises(MalformedName):
        parse_name(name)
    with pytest.raises(MalformedName):
        parse_plain_name(name)


@pytest.mark.parametrize("name", [".git", "-x", "a b", "é", "a:b", "$HOME", "*"])
def test_what_needs_quotes_or_hides_is_not_plain(name: str) -> None:
    parse_name(name)
    with pytest.raises(MalformedName):
        parse_plain_name(name)


@given(st.binary(max_size=300))
def test_a_name_that_is_taken_never_leaves_a_directory(raw: bytes) -> None:
    try:
        name = parse_name(raw)
    except MalformedName:
        return
    assert name.raw == raw
    path = Path("/top") / name
    assert os.fsencode(os.path.normpath(path)) == b"/top/" + raw
    assert path.parent == Path("/top")


def test_text_and_bytes_are_the_same_name() -> None:
    assert parse_name("caf\udce9") == parse_name(b"caf\xe9")
    assert parse_plain_name("docs-2_a.b").raw == b"docs-2_a.b"
