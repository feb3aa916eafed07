"""A person talks in a room on the web page, in a real browser, with a paired daemon (DESIGN 6, 10)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from sublet.daemon.api.room_people import MAX_PICTURE_BYTES
from support.browser import chromium
from support.daemon_rooms import WAIT_SECONDS, knows, until_known
from support.daemons import two_daemons, wait_for
from support.pictures import SVG, png
from support.typed_commands import Typing

pytestmark = pytest.mark.timeout(240)

HOSTILE = "<img src=x onerror=document.title='taken over'> \u202egnp.exe"


def messages(who: Typing, room: str) -> list[dict[str, Any]]:
    """Return the messages of a room that the daemon may not know yet."""
    return list(who.json("read", room)) if knows(who, room) else []


def refs(who: Typing, room: str) -> list[str]:
    return [one["ref_id"] for one in messages(who, room)]


def said(who: Typing, room: str, body: str) -> list[dict[str, Any]]:
    return [one for one in messages(who, room) if one["body"] == body]


def test_a_person_reads_and_writes_in_a_room_as_it_happens(tmp_path: Path) -> None:
    with two_daemons(tmp_path / "d") as (ours, theirs), chromium() as browser:
        here, there = Typing(ours), Typing(theirs)
        other = there.json("whoami")["entity_id"]
        browser.open(here.json("web")["url"])
        browser.wait_text("Nothing is lent yet")
        browser.click("nav a", "Rooms")
        browser.wait_text("No rooms yet")
        room = here.json("room", "create", "plans <b>")["room_id"]
        browser.wait_text("plans <b>", ".card")
        here.json("room", "invite", room, other)
        until_known(there, room)
        browser.wait_text("2 members", ".card")
        first = here.json("send", room, "first")["ref_id"]
        browser.click(".card", "plans <b>")
        browser.wait_text("first", ".talk")

        wait_for(lambda: first in refs(there, room), WAIT_SECONDS, "the room at the other side")
        there.json("send", room, HOSTILE, "--reply-to", first)
        shown = browser.wait_text("gnp.exe", ".talk")
        assert "<img src=x" in shown
        assert "U+202E" in shown
        assert "answers you: first" in shown
        assert shown.startswith("you")
        assert "\nbob\n" in shown, "the name of the peer"
        assert browser.run("return document.querySelector('.message:not(.own) b').title") == other
        assert browser.run("return document.querySelectorAll('main img').length") == 0
        assert browser.run("return document.title").startswith("Rooms ")

        (tmp_path / "log.txt").write_text("green")
        there.run("attach", room, str(tmp_path / "log.txt"))
        browser.wait_text("File: log.txt (5 B)", ".talk")

        browser.run(
            "URL.createObjectURL = (blob) => { blob.text().then((text) => { window.kept = text; }); return 'blob:x'; };"
            "HTMLAnchorElement.prototype.click = function () { window.called = this.download; };"
        )
        browser.click(".talk button", "Save")
        assert browser.wait(lambda: browser.run("return window.kept")) == "green"
        assert browser.run("return window.called") == "log.txt"

        browser.type("textarea", "from the page")
        browser.click("button", "Send")
        browser.wait_text("from the page", ".message.own:last-child")
        assert browser.run("return document.querySelector('textarea').value") == ""
        [mine] = wait_for(lambda: said(there, room, "from the page"), WAIT_SECONDS, "what was written on the page")
        assert mine["author"] == here.json("whoami")["entity_id"]
        assert browser.messages() == []


def test_the_picture_of_a_profile_is_shown_beside_its_name(tmp_path: Path) -> None:
    """By the page on a canvas, and by a command as a file; one that is none is not taken."""
    with two_daemons(tmp_path / "d") as (ours, theirs), chromium() as browser:
        here, there = Typing(ours), Typing(theirs)
        other, me = there.json("whoami")["entity_id"], here.json("whoami")["entity_id"]
        (tmp_path / "bob.png").write_bytes(png(64, 64))
        (tmp_path / "evil.png").write_bytes(SVG)
        (tmp_path / "large.png").write_bytes(png() + bytes(MAX_PICTURE_BYTES))
        for wrong in ("evil.png", "large.png", "none.png"):
            assert there.refused("profile", "--picture", str(tmp_path / wrong)) == "INVALID_ARGUMENT"
        avatar = there.json("profile", "--picture", str(tmp_path / "bob.png"))["frontmatter"]["avatar_hash"]
        assert there.refused("profile", "--set", f"avatar_hash={avatar}") == "INVALID_ARGUMENT"

        room = here.json("room", "create", "plans")["room_id"]
        here.json("room", "invite", room, other)
        until_known(there, room)
        wait_for(lambda: _avatar(here, other) == avatar, WAIT_SECONDS, "the profile")
        here.run("profile", other, "--save-picture", str(tmp_path / "saved.png"))
        assert (tmp_path / "saved.png").read_bytes() == png(64, 64)
        assert here.refused("profile", other, "--save-picture", str(tmp_path / "saved.png")) == "CONFLICT"
        here.run("profile", "--text", "I am Alice.")
        assert here.refused("profile", "--save-picture", str(tmp_path / "mine.png")) == "NOT_FOUND"

        browser.open(here.json("web")["url"])
        browser.click("nav a", "Rooms")
        browser.click(".card", "plans")
        browser.click("details.names summary")
        browser.wait(lambda: browser.run("return document.querySelectorAll('.portrait:not([hidden])').length") == 1)
        shown = (
            "const one = document.querySelector('.portrait:not([hidden])');"
            "return [one.parentElement.querySelector('code').textContent, "
            "[...one.getContext('2d').getImageData(16, 16, 1, 1).data]];"
        )
        assert browser.run(shown) == [other, [255, 0, 0, 255]]
        assert me != other
        assert browser.messages() == []


SEES: Final = """
const canvas = [...document.querySelectorAll('.portrait')].find((one) => one.entity === arguments[0]);
return !canvas || canvas.hidden ? [] : [...canvas.getContext('2d').getImageData(16, 16, 1, 1).data];
"""
ASKED: Final = """
const real = window.fetch;
window.asked = [];
window.fetch = (path, options) => {
  if (path.startsWith('/api/picture')) window.asked.push(path.includes('&known='));
  return real(path, options);
};
"""
"""Notes of each question for a picture whether the page said which one it has."""


def test_a_picture_that_its_owner_changes_or_takes_away_is_not_shown_any_more(tmp_path: Path) -> None:
    """While the room is open, and nothing of it is left after a log-out."""
    with two_daemons(tmp_path / "d") as (ours, theirs), chromium() as browser:
        here, there = Typing(ours), Typing(theirs)
        other = there.json("whoami")["entity_id"]
        for name, colour in (("red", (255, 0, 0)), ("blue", (0, 0, 255))):
            (tmp_path / f"{name}.png").write_bytes(png(64, 64, colour=colour))
        there.json("profile", "--picture", str(tmp_path / "red.png"))
        room = here.json("room", "create", "plans")["room_id"]
        here.json("room", "invite", room, other)
        until_known(there, room)
        wait_for(lambda: _avatar(here, other), WAIT_SECONDS, "the profile")

        def opened() -> None:
            browser.click("nav a", "Rooms")
            browser.click(".card", "plans")
            browser.click("details.names summary")

        browser.open(here.json("web")["url"])
        opened()
        browser.wait(lambda: browser.run(SEES, other) == [255, 0, 0, 255], what="the first picture")
        there.json("profile", "--picture", str(tmp_path / "blue.png"))
        browser.wait(lambda: browser.run(SEES, other) == [0, 0, 255, 255], what="the second picture")
        browser.run(ASKED)
        browser.wait(lambda: browser.run("return window.asked").count(True) > 0, what="a question with what is known")

        browser.click("button", "Log out")
        browser.wait_text("Log in to Sublet")
        browser.run("window.asked = []; location.hash = new URL(arguments[0]).hash", here.json("web")["url"])
        opened()
        browser.wait(lambda: browser.run(SEES, other) == [0, 0, 255, 255], what="the picture for the next login")
        assert browser.run("return window.asked[0]") is False
        there.json("profile", "--set", "avatar_hash=")
        browser.wait(lambda: browser.run(SEES, other) == [], what="the end of the picture")
        # Whoever looks at a canvas as often as this test is told of a quicker way.
        assert [one for one in browser.messages() if "willReadFrequently" not in one] == []


def _avatar(who: Typing, entity: str) -> object:
    found = json.loads(who.daemon.run("profile", entity, "--json", check=None).stdout or "{}")
    return found.get("frontmatter", {}).get("avatar_hash")
