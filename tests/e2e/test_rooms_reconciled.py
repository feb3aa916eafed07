"""Two real daemons, one of which was away: all that has changed meanwhile is there when it is back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemon_rooms import WAIT_SECONDS, bodies, shared_room
from support.daemons import two_daemons, wait_for
from support.typed_commands import Typing

OTHERS = 40


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Typing, Typing]]:
    with two_daemons(tmp_path) as (one, other):
        yield Typing(one), Typing(other)


def test_an_old_message_and_a_shared_text_that_are_edited_while_a_daemon_is_away_come(
    pair: tuple[Typing, Typing],
) -> None:
    alice, bob = pair
    room = shared_room(alice, bob)
    refs = [alice.json("send", room, str(number))["ref_id"] for number in range(OTHERS + 2)]
    for number, ref in enumerate(refs):
        alice.run("edit", room, ref, f"edited {number}")
    alice.run("text", "share", room, refs[1], "--all")
    wait_for(lambda: bodies(bob, room) == [f"edited {number}" for number in range(OTHERS + 2)], WAIT_SECONDS, "all")
    bob.daemon.run("down")
    bob.daemon.wait_gone()
    alice.run("edit", room, refs[0], "once more")
    alice.run("text", "edit", room, refs[1], "--append", "shared")
    expected = bodies(alice, room)
    assert expected[0] == "once more"
    bob.daemon.up()
    wait_for(lambda: bodies(bob, room) == expected, WAIT_SECONDS, "what has changed")
