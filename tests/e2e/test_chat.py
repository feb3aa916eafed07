"""``sublet chat`` between two real daemons, as it is seen in a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.daemon_rooms import WAIT_SECONDS, until_known
from support.daemons import two_daemons, wait_for
from support.rendered_terminal import rendered
from support.typed_commands import Typing


def said(who: Typing, room: str) -> list[str]:
    return [one["body"] for one in who.json("read", room)]


@pytest.mark.timeout(300)
def test_a_room_in_a_terminal(tmp_path: Path) -> None:
    with two_daemons(tmp_path) as (daemon, other):
        alice, bob = Typing(daemon), Typing(other)
        room = alice.json("room", "create", "Work")["room_id"]
        alice.run("send", room, "good morning")
        alice.run("room", "invite", room, "bob")
        until_known(bob, room)
        with rendered(daemon, "chat", "Work", environ={"NO_COLOR": "1"}) as terminal:
            terminal.until("good morning")
            terminal.until("2 members")
            first = bob.json("send", room, "hello \x1b[2J\u202eAlice")["ref_id"]
            terminal.until("hello Alice")
            tag = first[-4:].lower()
            assert any(tag in line and "bob" in line for line in terminal.lines)

            terminal.type("\x1b[200~one line\nand another\x1b[201~")
            terminal.until("and another")
            terminal.type("\r")
            wait_for(lambda: "one line\nand another" in said(bob, room), WAIT_SECONDS, "what was pasted")

            terminal.type(f"/reply {tag} I agree\r")
            terminal.until("> answers bob: hello Alice")
            wait_for(lambda: "I agree" in said(bob, room), WAIT_SECONDS, "the answer")
            last = bob.json("read", room)[-1]
            assert last["ext"]["reply_to"]["ref_id"] == first
            bob.run("react", room, last["ref_id"], "\N{PARTY POPPER}")
            terminal.until("\N{PARTY POPPER} 1")
            terminal.type(f"/react {tag} +1\r")
            terminal.until("[👍 1]")

            (tmp_path / "build log.txt").write_text("all green")
            terminal.type(f"/attach '{tmp_path}/build log.txt'\r")
            terminal.until("[file: build log.txt (9 B)]")
            wait_for(lambda: "build log.txt" in said(bob, room), WAIT_SECONDS, "the file")
            kept = bob.json("attach", room, "--get", "last", "--output", str(tmp_path / "his"))
            assert Path(kept["path"]).read_text() == "all green"
            his = bob.json("attach", room, str(tmp_path / "his"))["ref_id"]
            terminal.until("[file: his (9 B)]")
            terminal.type(f"/save {his[-4:].lower()} {tmp_path}/hers\r")
            terminal.until("kept as")
            assert (tmp_path / "hers").read_text() == "all green"
            terminal.type(f"/save last {tmp_path}/hers\r")
            terminal.until("a file is there already")
            terminal.type(f"/attach {tmp_path}/none\r")
            terminal.until("no file here")
            agreed = next(one for one in alice.json("read", room) if one["body"] == "I agree")
            terminal.type(f"/edit {agreed['ref_id'][-4:].lower()}\r")
            terminal.until("Esc stops that")
            terminal.type(" entirely\r")
            terminal.until("[edited]")
            wait_for(lambda: "I agree entirely" in said(bob, room), WAIT_SECONDS, "the edit")
            terminal.type("/delete\r")
            terminal.until("(deleted)")
            terminal.type("/nothing\r")
            terminal.until("there is no command /nothing")
            terminal.type("/who\r")
            terminal.until("owner")
            terminal.type("/clear\r")
            terminal.until("owner", gone=True)

            terminal.resize(40, 12)
            terminal.until("~", gone=True)
            terminal.type("\x1b[5~\x1b[5~\x1b[5~")
            terminal.until("good morning")
            terminal.until("End goes to the end")
            terminal.type("\x1b[F")
            terminal.until("(deleted)")

            daemon.run("down")
            daemon.wait_gone()
            terminal.until("the daemon is away")
            terminal.type("while it was away\r")
            terminal.until("> while it was away")
            daemon.up()
            bob.run("send", room, "are you there?")
            terminal.until("are you there?")
            terminal.type("\r")
            wait_for(lambda: "while it was away" in said(bob, room), WAIT_SECONDS, "what was typed meanwhile")
            terminal.type("\x04")
            assert terminal.status() == 0
