"""A steering message is for one process: an answer to one that was killed is stale, then refused (DESIGN 6.9)."""

from __future__ import annotations

from pathlib import Path

from support.ports import free_port
from support.room_processes import room_process


def test_an_answer_to_a_killed_process_steers_nothing_and_is_refused_once_that_is_known(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(2)]
    with room_process("alice", tmp_path, ports[0], extensions=True) as alice:
        with room_process("bob", tmp_path, ports[1], ports[0], extensions=True) as bob:
            room = alice.ask("room.create", name="Work")["room_id"]
            alice.ask("room.invite", room_id=room, entity=bob.id)
            bob.until("room.member.joined", entity=bob.id)
            asked = bob.ask("message.send", room_id=room, body="May I?", ext={"asks": True})["ref_id"]
            alice.until("message.new", ref_id=asked)
            answer = alice.ask("message.send", room_id=room, body="yes", ext={"reply_to": asked})["ref_id"]
            bob.until("control.received", ref_id=answer, to=bob.id, by=alice.id)
            again = bob.ask("message.send", room_id=room, body="And this?", ext={"asks": True})["ref_id"]
            alice.until("message.new", ref_id=again)
        # Bob's process was killed, which Alice has no way to know.
        late = alice.ask("message.send", room_id=room, body="no", ext={"reply_to": again})["ref_id"]
        with room_process("bob", tmp_path, ports[1], ports[0], extensions=True) as bob:
            bob.until("control.stale", ref_id=late, to=bob.id, by=alice.id)
            now = bob.ask("message.send", room_id=room, body="I am back: may I?", ext={"asks": True})["ref_id"]
            alice.until("message.new", ref_id=now)
            alice.tell("message.send", room_id=room, body="no", ext={"reply_to": again})
            assert "started again" in alice.line()["error"]
            answer = alice.ask("message.send", room_id=room, body="yes", ext={"reply_to": now})["ref_id"]
            bob.until("control.received", ref_id=answer)
            assert "no" in bob.bodies(room), "it is kept, as what somebody said"
            assert bob.bodies(room).count("no") == 1
