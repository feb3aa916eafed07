"""What is answered of a sealed room says nothing on its way, not by its length either."""

from __future__ import annotations

import time
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from nacl.signing import VerifyKey

from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.keys import Channel, channel_key, doc_id
from sublet.protocol.ezagent.question import open_answer, seal_for
from sublet.protocol.ezagent.sealing.padding import FRAME_BYTES, padded_size
from sublet.protocol.ezagent.yjs.vectors import encode_vector
from support.members import SECONDS, member, question
from support.memory_network import MemoryHub
from support.rooms import Clock, Peer

pytestmark = pytest.mark.anyio
AROUND = 48
"""Bytes of a sealed box around what is in it."""


@pytest.mark.parametrize("encryption", ["members", "transport_only"])
async def test_answers_about_sealed_rooms_are_padded(tmp_path: Path, encryption: str) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        bob, line = Peer("bob", 5, clock=Clock(time.time_ns() // 1_000_000)), hub.join()
        room = (await alice.bus.room.create(name="a name", invite=[bob.id], encryption=encryption))["room_id"]
        key = channel_key(doc_id("config", room_id=room), Channel.STATE)
        answers: list[bytes] = []
        with anyio.fail_after(SECONDS):
            while not answers:  # the room is served a moment later
                asked = question(key, bob, encode_vector({}))
                answers = await anyio.to_thread.run_sync(line.query, key, asked, 5.0)
                await anyio.sleep(0.02)
    [answer] = answers
    opened = open_answer(bob.entity.key, answer)
    assert b"a name" in opened
    is_padded = encryption == "members"
    assert len(answer) - AROUND == (1 + padded_size(len(opened) + FRAME_BYTES) if is_padded else len(opened))


def test_what_is_padded_otherwise_is_refused() -> None:
    bob = Peer("bob", 5).entity.key
    for wrong in (b"\x83", b"\x83" + bytes(255), b"\x83" + b"\0\0\0\1" + bytes(251) + b"x"):
        with pytest.raises(Refused, match=r"padded|cut off"):
            open_answer(bob, seal_for(bob.verify_key, wrong, in_steps=False))
    assert open_answer(bob, seal_for(bob.verify_key, b"", in_steps=True)) == b""


def test_nothing_is_sealed_for_a_key_that_only_signs() -> None:
    with pytest.raises(Refused, match="nothing can be sealed"):
        seal_for(VerifyKey(bytes(32)), b"an answer", in_steps=True)
