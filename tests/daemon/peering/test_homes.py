"""Two homes with one key: of two at once the older is taken, and the other refused until a person pairs anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from sublet.daemon.peering.homes import Homes
from sublet.daemon.peering.peers import Peer
from sublet.protocol.home_token import MAX_CHARS, HomeToken, new_token, parse_home

KEY = bytes(SigningKey(b"k" * 32).verify_key)
PEER = Peer("bob", KEY, None, None, paired_at="2026-11-29T10:00:00.000Z")
NODE = PEER.node_id
NOW = 1_800_000_000.0


class Paired:
    """Who is paired now."""

    def __init__(self) -> None:
        self.peer: Peer | None = PEER

    def __call__(self, node_id: str) -> Peer | None:
        return self.peer if node_id == NODE else None


@pytest.fixture
def paired() -> Paired:
    return Paired()


@pytest.fixture
def homes(tmp_path: Path, paired: Paired) -> Homes:
    return Homes(tmp_path / "homes.json", paired, lambda: NOW)


FIRST = HomeToken(new_token())


def test_a_home_is_taken_again_and_again_and_one_that_says_nothing_too(homes: Homes) -> None:
    for said in (FIRST.said, FIRST.said, "", "odd", "x" * 1_000):
        assert homes.admits(NODE, said)
    assert homes.admits("somebody", FIRST.moved().said)
    assert homes.remarks() == []


def test_a_home_that_was_moved_is_taken_where_the_one_before_is_gone(homes: Homes) -> None:
    moved = FIRST.moved()
    homes.admits(NODE, FIRST.said)
    homes.opened(NODE, FIRST.said)
    homes.ended(NODE, FIRST.said)
    assert homes.admits(NODE, moved.said)
    assert homes.admits(NODE, FIRST.said), "it was not there at the same time"
    assert homes.remarks() == []


@pytest.mark.parametrize("other", [FIRST.moved(), HomeToken(new_token())], ids=["a copy of it", "of the key alone"])
def test_of_two_at_once_the_older_is_taken_whoever_comes_first(homes: Homes, tmp_path: Path, other: HomeToken) -> None:
    assert homes.admits(NODE, FIRST.said)
    assert homes.admits(NODE, other.said)
    homes.opened(NODE, other.said)
    assert homes.admits(NODE, FIRST.said), "it was met first"
    assert not homes.admits(NODE, other.said)
    [line] = homes.remarks()
    assert "bob runs twice" in line
    assert "sublet doctor --own-home" in line
    homes.ended(NODE, other.said)
    assert not homes.admits(NODE, other.said), "also alone"
    again = Homes(tmp_path / "homes.json", Paired(), lambda: NOW)
    assert not again.admits(NODE, other.said), "and after a restart"
    assert again.admits(NODE, FIRST.said)


def test_the_newer_one_is_refused_while_the_older_has_a_link(homes: Homes) -> None:
    homes.admits(NODE, FIRST.said)
    homes.opened(NODE, FIRST.said)
    assert not homes.admits(NODE, FIRST.moved().said)
    assert homes.admits(NODE, FIRST.said)


def test_who_is_paired_anew_is_taken_for_what_it_says(homes: Homes, paired: Paired) -> None:
    moved = FIRST.moved()
    homes.admits(NODE, FIRST.said)
    homes.opened(NODE, FIRST.said)
    assert not homes.admits(NODE, moved.said)
    homes.ended(NODE, FIRST.said)
    assert not homes.admits(NODE, moved.said)
    paired.peer = replace(PEER, paired_at="2030-01-01T00:00:00.000Z")
    assert homes.admits(NODE, moved.said)
    assert homes.remarks() == []


def test_who_refuses_this_home_is_told_of_until_it_takes_it(homes: Homes) -> None:
    homes.refused_by("alice")
    homes.refused_by("alice")
    [line] = homes.remarks()
    assert "alice says that this home is a copy of another one" in line
    homes.taken_by("alice")
    assert homes.remarks() == []


@pytest.mark.parametrize("torn", [b"{", b"[]", b'{"a": 1}', b'{"a": {"home": "x", "refused": {}, "met": []}}'])
def test_a_file_that_can_t_be_read_is_begun_anew(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "homes.json").write_bytes(torn)
    assert Homes(tmp_path / "homes.json", Paired(), lambda: NOW).admits(NODE, FIRST.said)


@given(st.text() | st.none() | st.integers())
def test_whatever_a_peer_says_of_its_home_is_one_or_nothing(said: object) -> None:
    found = parse_home(said)
    assert found is None or found.said == said


def test_a_home_that_moves_often_names_a_bounded_number_before() -> None:
    home = FIRST
    for _ in range(40):
        home = home.moved()
    assert len(home.said) <= MAX_CHARS
    assert parse_home(home.said) == home
