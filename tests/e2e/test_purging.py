"""``sublet room purge`` between real daemons: gone from every disk, from who was away, and from who comes later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.daemon_rooms import WAIT_SECONDS, knows, shared_room, until_known
from support.daemons import Daemon, pair, two_daemons, wait_for
from support.typed_commands import Typing

pytestmark = pytest.mark.timeout(300)
SECRET = "the horse is called Xenophon-{}, and nobody may know of it"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Typing, Typing, Typing]]:
    base = tmp_path_factory.mktemp("purging")
    carol = Daemon(base / "c")
    with two_daemons(base) as (alice, bob):
        try:
            carol.up()
            pair(alice, carol, "carol")
            pair(bob, carol, "carol")
            yield Typing(alice), Typing(bob), Typing(carol)
        finally:
            carol.down()


def on_disk(who: Typing, text: str) -> list[str]:
    """Return the files of a daemon's state in which a text is, but for its log of commands."""
    state = who.daemon.home / "state"
    needle = text.encode()
    return [str(one.relative_to(state)) for one in state.rglob("*") if one.is_file() and needle in one.read_bytes()]


def shown(who: Typing, room: str, ref: str) -> dict[str, Any]:
    found = who.json("read", room, "--limit", "50") if knows(who, room) else []
    return next((one for one in found if one["ref_id"] == ref), {})


def is_purged(who: Typing, room: str, ref: str) -> bool:
    one = shown(who, room, ref)
    return one != {} and one["body"] is None and "purged" in one["about"]


def until_erased(who: Typing, text: str) -> None:
    wait_for(lambda: not on_disk(who, text), WAIT_SECONDS, f"the end of it on the disk: {on_disk(who, text)}")


def room_of_three(three: tuple[Typing, Typing, Typing], *options: str) -> str:
    alice, bob, carol = three
    room = shared_room(alice, bob, *options)
    alice.run("room", "invite", room, carol.json("whoami")["entity_id"])
    until_known(carol, room)
    return room


def test_what_is_purged_is_gone_from_every_disk_also_of_who_was_away(three: tuple[Typing, Typing, Typing]) -> None:
    alice, bob, carol = three
    room, secret = room_of_three(three), SECRET.format("away")
    ref = bob.json("send", room, secret)["ref_id"]
    edited = bob.json("send", room, "before the edit")["ref_id"]
    bob.run("edit", room, edited, secret + " either")
    for who in (alice, carol):
        wait_for(lambda who=who: "either" in (shown(who, room, edited).get("body") or ""), WAIT_SECONDS, "the edit")
        assert on_disk(who, secret)
    assert alice.json("search", "--messages", "Xenophon")  # so that its words are on the disk, too
    carol.daemon.run("down")
    carol.daemon.wait_gone()
    assert bob.json("room", "purge", room, ref)["changed"] is True
    assert alice.json("room", "purge", room, edited)["changed"] is True, "she owns the room"
    for who in (alice, bob):
        for one in (ref, edited):
            wait_for(lambda who=who, one=one: is_purged(who, room, one), WAIT_SECONDS, "the purge")
        until_erased(who, "Xenophon-away")
    carol.daemon.up()
    for one in (ref, edited):
        wait_for(lambda one=one: is_purged(carol, room, one), WAIT_SECONDS, "the purge of who was away")
    until_erased(carol, "Xenophon-away")
    assert "(purged)" in carol.run("read", room)
    assert bob.json("room", "purge", room, ref)["changed"] is False
    for who in (alice, bob):
        assert is_purged(who, room, ref), "it has not come back"
    assert "Purged" not in carol.refused("room", "purge", room, bob.json("send", room, "his")["ref_id"])


def test_a_file_stays_as_long_as_another_message_comes_with_it(
    three: tuple[Typing, Typing, Typing], tmp_path: Path
) -> None:
    alice, bob, _ = three
    # Of a sealed room nobody finds the words of a file on a disk anyway.
    room, secret = room_of_three(three, "--encryption", "transport_only"), SECRET.format("file")
    (tmp_path / "plan.txt").write_text(secret)
    first = bob.json("send", room, "one", "--attach", str(tmp_path / "plan.txt"))["ref_id"]
    other = bob.json("send", room, "two", "--attach", str(tmp_path / "plan.txt"))["ref_id"]
    wait_for(lambda: shown(alice, room, other) != {}, WAIT_SECONDS, "the messages")
    done = bob.json("room", "purge", room, first, "--file")
    assert done["changed"] is True
    assert len(done["kept_files"]) == 1
    assert shown(bob, room, first)["body"] == "one"
    assert on_disk(bob, secret)
    assert bob.json("room", "purge", room, other)["kept_files"] == []
    until_erased(bob, secret)
    wait_for(lambda: is_purged(alice, room, other), WAIT_SECONDS, "the purge")
    until_erased(alice, secret)


def test_who_comes_later_and_a_home_of_before_do_not_have_it(three: tuple[Typing, Typing, Typing]) -> None:
    alice, bob, carol = three
    room, secret = shared_room(alice, bob), SECRET.format("later")
    ref = bob.json("send", room, secret)["ref_id"]
    wait_for(lambda: shown(alice, room, ref) != {}, WAIT_SECONDS, "the message")
    bob.json("room", "purge", room, ref)
    alice.run("room", "invite", room, carol.json("whoami")["entity_id"])
    until_known(carol, room)
    wait_for(lambda: is_purged(carol, room, ref), WAIT_SECONDS, "the room")
    assert not on_disk(carol, "Xenophon-later")
