"""Every command of rooms once, between two real daemons."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.daemon_rooms import WAIT_SECONDS, is_invited, knows, until_known
from support.daemons import two_daemons, wait_for
from support.typed_commands import Typing

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Typing, Typing]]:
    with two_daemons(tmp_path_factory.mktemp("rooms")) as (alice, bob):
        yield Typing(alice), Typing(bob)


def message(who: Typing, room: str, ref: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = who.json("read", room)
    return next((one for one in found if one["ref_id"] == ref), {})


def joined(who: Typing, room: str) -> bool:
    """Try to join; tell whether that went."""
    try:
        who.run("room", "join", room)
    except AssertionError:
        return False
    return True


def has_all(who: Typing, room: str, ref: str) -> bool:
    """Tell whether the text of several is there with what each has written."""
    return {"2", "four", "five"} <= set(who.run("text", "show", room, ref).split())


def listed(who: Typing, name: str) -> list[str]:
    """Return the columns of a room in the list: id, role, members, how much is unread, and the rest."""
    return next(line.split() for line in who.run("room", "list").splitlines() if line.endswith(name))


def until(check: Callable[[], bool], what: str) -> None:
    wait_for(check, WAIT_SECONDS, what)


def test_members_come_and_go_by_commands(pair: tuple[Typing, Typing]) -> None:
    alice, bob = pair
    hers, his = (who.json("whoami")["entity_id"] for who in pair)
    room = alice.json("room", "create", "Work", "--policy", "knock")["room_id"]

    # As soon as they are paired: the room is looked for while their link opens.
    until(lambda: bob.refused("room", "join", room) == "POLICY_DENIED", "the room")
    bob.run("room", "knock", room, "it is Bob")
    until(lambda: alice.json("room", "show", room)["knocks"] == {his: "it is Bob"}, "the knock")
    assert "it is Bob" in alice.run("room", "show", "Work")
    alice.run("room", "decline", room, "bob")
    assert alice.json("room", "show", room)["knocks"] == {}
    bob.run("room", "knock", room)
    until(lambda: his in alice.json("room", "show", room)["knocks"], "the second knock")
    alice.run("room", "invite", room, "bob")
    until_known(bob, room)
    assert alice.json("room", "show", room)["knocks"] == {}

    config = alice.json("room", "config", room, "--name", "Play", "--power", "bob=10", "--level", "events_default=5")
    assert (config["name"], config["powers"][his], config["config"]["power_levels.events_default"]) == ("Play", 10, 5)
    config = alice.json("room", "config", room, "--disable", "threads", "--set", "ext.channels.hints=[]")
    assert "threads" not in config["config"]["enabled_extensions"]
    assert config["config"]["ext.channels.hints"] == []
    assert alice.json("room", "config", room, "--enable", "threads", "--policy", "open")["policy"] == "open"
    until(lambda: bob.json("room", "show", room)["name"] == "Play", "the other name")
    assert bob.refused("room", "config", room, "--name", "Mine")
    assert bob.refused("room", "kick", room, hers)

    alice.run("room", "kick", room, "bob", "--reason", "for a test")
    until(lambda: not knows(bob, room), "the removal")
    bob.run("room", "join", room)
    until(lambda: his in alice.json("room", "show", room)["roles"], "the return")
    alice.run("room", "ban", room, "bob")
    until(lambda: not knows(bob, room), "the ban")
    assert bob.refused("room", "join", room)
    assert alice.refused("room", "kick", room, his)
    alice.run("room", "unban", room, "bob")
    until(lambda: joined(bob, room), "the ban that is lifted")
    until(lambda: his in alice.json("room", "show", room)["roles"], "the return after the ban")
    alice.run("room", "config", room, "--role", "bob=owner")
    assert alice.json("room", "show", room)["roles"][his] == "owner"


def test_who_is_invited_answers_and_the_others_see_it(pair: tuple[Typing, Typing]) -> None:
    alice, bob = pair
    hers, his = (who.json("whoami")["entity_id"] for who in pair)
    rooms = {name: alice.json("room", "create", name)["room_id"] for name in ("Yes", "No", "Back")}
    for room in rooms.values():
        alice.run("room", "invite", room, "bob")
        until(partial(is_invited, bob, room), "the invitation")
        assert alice.json("room", "show", room)["invited"] == {his: "pending"}
    assert "has not accepted yet" in alice.run("room", "show", "Yes")
    told = alice.json("send", "Yes", "what bob reads later")
    assert told["receipt"] == "queued"
    reasons = [one["reason"] for one in alice.json("receipts", "Yes", told["ref_id"])["recipients"]]
    assert reasons == ["has not accepted the invitation yet"]
    listed_rooms = [one["room_id"] for one in bob.json("room", "list")]
    assert not set(rooms.values()) & set(listed_rooms)
    waiting = {one["room_id"]: one for one in bob.json("room", "invitations") if one["answer"] == "pending"}
    assert set(waiting) == set(rooms.values())
    shown = waiting[rooms["Yes"]]
    assert (shown["name"], shown["by"], shown["whom"], sorted(shown["members"])) == (
        "Yes",
        hers,
        [his],
        sorted([hers, his]),
    )
    assert "Yes" in bob.run("room", "invitations")
    for command in (["read", "Yes"], ["send", "Yes", "hello"], ["room", "show", rooms["Yes"]]):
        assert bob.refused(*command) == "NOT_FOUND"
    assert "sublet room accept" in bob.run("read", "Yes", "--json", fails=True)
    assert bob.refused("room", "accept") == "INVALID_ARGUMENT", "several wait"

    assert bob.json("room", "accept", "Yes")["here"] is True
    until(lambda: [one["body"] for one in bob.json("read", "Yes")] == ["what bob reads later"], "the message")
    until(lambda: alice.json("room", "show", "Yes")["invited"] == {}, "the yes")
    bob.run("room", "decline", "No")
    until(lambda: alice.json("room", "show", "No")["invited"] == {his: "declined"}, "the no")
    assert "Declined to come in" in alice.run("room", "show", "No")
    alice.run("room", "kick", "Back", "bob")
    until(lambda: not is_invited(bob, rooms["Back"]), "the invitation that is taken back")
    assert bob.refused("room", "accept") == "NOT_FOUND", "none waits"
    assert bob.refused("room", "decline", "Yes") == "NOT_FOUND"


def test_answering_somebody_says_yes_to_talking_with_them(pair: tuple[Typing, Typing]) -> None:
    alice, bob = pair
    hers = alice.json("whoami")["entity_id"]
    direct = alice.json("send", "bob", "a word, Bob")["room_id"]
    until(lambda: is_invited(bob, direct), "the invitation")
    assert "wants to talk with you" in bob.run("read", hers, "--json", fails=True)
    assert bob.json("send", hers, "yes?")["room_id"] == direct
    until(lambda: [one["body"] for one in bob.json("read", direct)][-1] == "yes?", "both")


def test_D43_whoever_does_not_exist_is_not_invited(pair: tuple[Typing, Typing]) -> None:
    """Neither an agent that a paired daemon says it has not, nor anybody of a daemon that nobody knows."""
    alice, _ = pair
    hers, his = (who.json("whoami")["entity_id"] for who in pair)
    room = alice.json("room", "create", "Work")["room_id"]
    for nobody in ("nosuchagent@bob", "@human:node-cccccccccccccccc", f"@typo:{hers.partition(':')[2]}"):
        assert alice.refused("room", "invite", room, nobody) == "NOT_FOUND"
        assert alice.refused("send", nobody, "hello?") == "NOT_FOUND"
    assert set(alice.json("room", "show", room)["roles"]) == {hers}
    alice.run("room", "invite", room, "bob")
    assert set(alice.json("room", "show", room)["roles"]) == {hers, his}


def test_messages_and_all_that_is_done_to_them(pair: tuple[Typing, Typing]) -> None:
    alice, bob = pair
    his = bob.json("whoami")["entity_id"]
    room = alice.json("room", "create", "Talk")["room_id"]
    alice.run("room", "invite", room, his)
    until_known(bob, room)

    root = alice.json("send", room, "-", "--channel", "#Ops", stdin="two\nlines\n")["ref_id"]
    until(lambda: message(bob, room, root) != {}, "the message")
    assert message(bob, room, root)["body"] == "two\nlines"
    assert message(bob, room, root)["ext"]["channels"] == ["ops"]
    bob.run("watch", "set", room, root, "--reactions", "--reason", "mine")
    assert [one["ref_id"] for one in bob.json("watch", "list")["refs"]] == [root]
    bob.run("watch", "set", room, "--channel", "ops", "--here")
    cursor = bob.json("watch", "--since", "0")["cursor"]
    answer = alice.json("send", room, "in the thread", "--thread", root[-6:], "--reply-to", root)["ref_id"]
    until(lambda: message(bob, room, answer) != {}, "the answer")
    thread = [one["ref_id"] for one in bob.json("thread", room, root)]
    assert thread == [root, answer], "with the message that it begins with"
    assert [one["ref_id"] for one in bob.json("thread", room)] == [root]
    assert [one["ref_id"] for one in bob.json("read", room, "--channel", "ops")] == [root]
    assert bob.json("read", room, "--channel", "ops", "--before", root) == []
    assert [one["channel"] for one in bob.json("channels")] == ["ops"]
    kinds = [event["kind"] for event in bob.json("watch", "events", room, "--since", str(cursor))["events"]]
    assert {"message.new", "watch.ref_reply_added", "watch.ref_thread_reply"} <= set(kinds)
    assert bob.json("watch", "unset", room, root)["refs"] == []
    assert bob.json("watch", "unset", room)["channels"] == []

    assert bob.json("react", room, root, "+1")["changed"] is True
    assert bob.json("react", room, root, "+1")["changed"] is False
    until(lambda: "reactions" in message(alice, room, root)["about"], "the reaction")
    assert message(alice, room, root)["about"]["reactions"]["👍"]["users"] == [his]
    assert bob.json("react", room, root, "+1", "--remove")["changed"] is True

    alice.run("edit", room, "last", "in the thread, edited")
    until(lambda: message(bob, room, answer)["status"] == "edited", "the edit")
    assert [one["body"] for one in alice.json("edit", room, answer)] == ["in the thread", "in the thread, edited"]
    assert bob.refused("edit", room, answer, "not mine")
    assert bob.refused("redact", room, answer)
    alice.run("pin", room, root)
    until(lambda: message(bob, room, root)["about"].get("pinned") is True, "the pin")
    assert alice.json("pin", room, root)["changed"] is False
    assert alice.json("unpin", room, root)["changed"] is True
    assert "not pinned" in alice.run("unpin", room, root)
    until(lambda: "pinned" not in message(bob, room, root)["about"], "the pin that is gone")
    spam = bob.json("send", room, "spam")["ref_id"]
    until(lambda: message(alice, room, spam) != {}, "the spam")
    alice.run("redact", room, spam, "--reason", "spam")
    until(lambda: message(bob, room, spam)["body"] is None, "the message that is taken down")
    assert "taken down" in bob.run("read", room)
    assert alice.json("delete", room, answer)["changed"] is True
    assert alice.json("delete", room, answer)["changed"] is False
    until(lambda: message(bob, room, answer)["status"] == "deleted_by_author", "the deletion")
    assert "(deleted)" in bob.run("read", "Talk")


def test_a_text_is_written_by_several(pair: tuple[Typing, Typing]) -> None:
    alice, bob = pair
    hers, his = (who.json("whoami")["entity_id"] for who in pair)
    room = alice.json("room", "create", "Texts")["room_id"]
    alice.run("room", "invite", room, "bob")
    until_known(bob, room)
    ref = alice.json("send", room, "one\ntwo\nthree")["ref_id"]
    until(lambda: message(bob, room, ref) != {}, "the message")
    assert bob.refused("text", "show", room, ref) == "CONFLICT"
    assert bob.refused("text", "share", room, ref, "--all") == "POLICY_DENIED"
    assert alice.json("text", "share", room, ref)["mode"] == "owner_only"

    shared = alice.json("text", "share", room, "last", "--with", "bob")
    assert (shared["owner"], shared["mode"], shared["editors"]) == (hers, "explicit", [his])
    until(lambda: bob.json("text", "share", room, ref)["editors"] == [his], "the leave")
    assert "Written by bob" not in alice.run("text", "share", room, ref)
    until(lambda: bob.json("text", "show", room, ref)["may_edit"] is True, "the text")
    assert bob.json("text", "edit", room, ref, "one\n2\nthree")["text"] == "one\n2\nthree"
    alice.run("text", "edit", room, ref, "--append", "\nfour")
    bob.run("text", "edit", room, ref, "--append", "\nfive")
    for who in pair:
        until(partial(has_all, who, room, ref), "what both wrote")
    long = "\n".join(map(str, range(5_000)))
    alice.run("text", "edit", room, ref, "-", stdin=f"{long}\n")
    assert alice.json("text", "show", room, ref)["text"] == long
    bob.run("read", room)
    alice.run("send", room, "news")
    until(lambda: listed(bob, "Texts")[3] == "1", "what is unread")
    assert "(edited)" in alice.run("read", room)

    alice.run("text", "share", room, ref, "--without", "bob")
    until(lambda: bob.json("text", "show", room, ref)["may_edit"] is False, "the end of the leave")
    assert bob.refused("text", "edit", room, ref, "mine") == "POLICY_DENIED"
    assert alice.json("text", "share", room, ref, "--all")["mode"] == "room_members"


def test_people_say_who_they_are_and_what_they_are_about(pair: tuple[Typing, Typing], tmp_path: Path) -> None:
    alice, bob = pair
    hers = alice.json("whoami")["entity_id"]
    room = alice.json("room", "create", "People")["room_id"]
    assert "sublet profile --set" in json.loads(alice.run("profile", "--json", fails=True))["error"]["hint"]
    alice.run("profile", "--set", "display_name=Alice", "--set", "skills=python", "--text", "I review code.")
    alice.run("room", "invite", room, "bob")
    until_known(bob, room)
    until(lambda: [one["entity_id"] for one in bob.json("search", "Python", "review")] == [hers], "the profile")
    assert bob.json("profile", hers)["frontmatter"]["display_name"] == "Alice"
    assert "skills" not in alice.json("profile", "--set", "skills=")["frontmatter"]

    alice.run("presence", room, "--status", "back at three")

    def bob_sees() -> bool:
        found: dict[str, object] = next((one for one in bob.json("presence", room) if one["entity"] == hers), {})
        return {"entity": hers, "status": "back at three"}.items() <= found.items()

    until(bob_sees, "the status")
    notes = tmp_path / "notes.txt"
    notes.write_bytes(b"\x00notes\xff" * 1000)
    sent = alice.json("send", room, "here they are", "--attach", str(notes))["ref_id"]
    until(lambda: message(bob, room, sent) != {}, "the message with a file")
    assert "file: notes.txt" in bob.run("read", room)
    assert bob.json("attach", room, "--get", sent, "--output", str(tmp_path / "copy"))["path"].endswith("/copy")
    assert (tmp_path / "copy").read_bytes() == notes.read_bytes()
    bob.run("attach", room, "--get", sent, "--output", str(tmp_path / "copy"), fails=True)
    answer = bob.json("attach", room, str(notes))["ref_id"]
    until(lambda: message(alice, room, answer) != {}, "the file back")
    assert message(alice, room, answer)["ext"]["media"]["filename"] == "notes.txt"

    alice.run("drafts", room, "not yet")
    assert [one["body"] for one in alice.json("drafts")] == ["not yet"]
    assert bob.json("drafts") == []
    alice.run("drafts", room, "--clear")
    assert alice.json("drafts", room)["body"] == ""


def test_answers_across_rooms_formats_and_search_by_commands(pair: tuple[Typing, Typing]) -> None:
    alice, bob = pair
    one, other = [alice.json("room", "create", name)["room_id"] for name in ("Source", "Target")]
    asked = alice.json("send", one, "- [ ] what is the *zebra* count?", "--format", "markdown")["ref_id"]
    answer = alice.json("send", other, "- forty", "--reply-to", asked[-6:], "--reply-room", "Source")["ref_id"]
    shown = message(alice, other, answer)
    assert shown["body"] == "- forty"
    assert shown["ext"]["reply_to"]["room_id"] == one
    assert shown["about"]["reply_preview"]["body"] == "- [ ] what is the *zebra* count?"
    assert "in another room: - [ ] what is the *zebra* count?" in alice.run("read", other)
    assert message(alice, one, asked)["format"] == "markdown"
    assert "(markdown)" in alice.run("read", one)
    alice.run("edit", one, asked, "<b>zebra</b>", "--format", "html")
    assert message(alice, one, asked)["format"] == "html"
    assert alice.refused("send", one, "x", "--format", "rtf") == "INVALID_ARGUMENT"
    assert alice.refused("send", one, "x", "--reply-room", "Target") == "INVALID_ARGUMENT"
    alice.run("room", "invite", other, "bob")
    until_known(bob, other)
    until(lambda: message(bob, other, answer) != {}, "the answer")
    assert message(bob, other, answer)["about"]["reply_preview"] == {"accessible": False}
    assert "a message of a room that you are not in" in bob.run("read", other)
    assert bob.refused("send", other, "x", "--reply-to", asked, "--reply-room", one) == "NOT_FOUND"

    found = alice.json("search", "--messages", "zeb")
    assert [one["ref_id"] for one in found["messages"]] == [asked]
    assert (found["complete"], found["next_cursor"]) == (True, None)
    assert "In Source:" in alice.run("search", "--messages", "zebra")
    assert bob.json("search", "--messages", "zebra")["messages"] == []
    assert [one["ref_id"] for one in bob.json("search", "--messages", "forty")["messages"]] == [answer]
    assert alice.json("search", "--messages", "zebra", "--room", "Target")["messages"] == []
    assert alice.json("search", "--messages", "zebra", "--room", "Source", "--before", asked[-6:])["messages"] == []
    assert alice.refused("search", "--messages", "zebra", "--before", asked[-6:]) == "INVALID_ARGUMENT"
    assert alice.refused("search", "zebra", "--limit", "3") == "INVALID_ARGUMENT"
