"""Identifiers have one shape, and it can be neither a path nor an option."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from sublet.protocol.ids import (
    AGENT_ID,
    DELEGATION_ID,
    FINGERPRINT,
    PEER_NAME,
    WIRE_DELEGATION_ID,
    fingerprint,
    new_delegation_id,
    node_id,
)
from sublet.protocol.messages import Done

SHAPES = [
    pytest.param(shape, id=name)
    for name, shape in {
        "delegation": DELEGATION_ID,
        "wire-delegation": WIRE_DELEGATION_ID,
        "peer": PEER_NAME,
        "agent": AGENT_ID,
        "fingerprint": FINGERPRINT,
    }.items()
]
keys = st.binary(min_size=32, max_size=32)


def test_delegation_ids_have_their_shape_and_differ() -> None:
    ids = {new_delegation_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(DELEGATION_ID.match(one) for one in ids)


def test_our_delegation_ids_are_valid_on_the_wire() -> None:
    one = new_delegation_id()
    assert Done(delegation_id=one, final_summary="").delegation_id == one


@given(keys)
def test_names_of_a_key_have_their_shape(key: bytes) -> None:
    assert FINGERPRINT.match(fingerprint(key))
    assert re.fullmatch(r"node-[a-z2-7]{16}", node_id(key))


@given(keys, keys)
def test_names_tell_keys_apart(one: bytes, other: bytes) -> None:
    assert (fingerprint(one) == fingerprint(other)) == (one == other)
    assert (node_id(one) == node_id(other)) == (one == other)


def test_names_come_from_the_sha256_of_the_key() -> None:
    key = bytes(SigningKey(bytes(32)).verify_key)
    digest = hashlib.sha256(key).digest()
    assert base64.b64decode(fingerprint(key).removeprefix("SHA256:") + "=") == digest
    assert base64.b32decode(node_id(key).removeprefix("node-").upper()) == digest[:10]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "../x",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "-oX",
        "--help",
        "a b",
        "a\n",
        "\x00",
        "a\x00",
        "\u0430",
        "x" * 5000,
    ],
)
def test_no_shape_takes_a_path_an_option_or_a_control(shape: re.Pattern[str], text: str) -> None:
    assert shape.match(text) is None


@pytest.mark.parametrize("shape", SHAPES)
@given(text=st.text(max_size=70))
def test_what_a_shape_takes_is_one_printable_word(shape: re.Pattern[str], text: str) -> None:
    if shape.match(text):
        assert text.isascii()
        assert not re.search(r"[\s\\\x00-\x1f]", text)
        assert not text.startswith(("-", ".", "/"))


@pytest.mark.parametrize("name", ["bob", "b", "bob-2", "bob.example", "0", "a_b", "x" * 63])
def test_ordinary_peer_names_are_taken(name: str) -> None:
    assert PEER_NAME.match(name)


@pytest.mark.parametrize("name", ["Bob", "_bob", "x" * 64, "bob/reviewer", "bob@home"])
def test_other_peer_names_are_not(name: str) -> None:
    assert PEER_NAME.match(name) is None
