"""Files of sealed rooms: named, kept and told sealed; who is no member learns neither bytes, name nor length."""

from __future__ import annotations

import hashlib
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
import pytest

from messaging.sealing.test_sealed_rooms import sealed_room
from sublet.messaging.engine.engine import Engine
from sublet.messaging.extensions.media import MEDIA_FILES
from sublet.protocol.encoding import b64
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.sealing.files import sealed_size
from support.members import SECONDS, Member, member
from support.tapped_hub import TappedHub

pytestmark = pytest.mark.anyio
PLANTED = b"the planted words of a file " * 300
NAME = "planted-name.txt"


async def two(stack: AsyncExitStack, hub: TappedHub, path: Path) -> tuple[Member, Member]:
    for name in ("alice", "bob"):
        (path / name).mkdir()
    alice, bob = [
        await stack.enter_async_context(member(name, number, hub, path / name, more=(MEDIA_FILES,)))
        for number, name in enumerate(("alice", "bob"), 1)
    ]
    return alice, bob


async def named(who: Member, room: str) -> None:
    with anyio.fail_after(SECONDS):
        while not await who.bus.media.list(room_id=room):
            await who.service.asking.room(room)


async def upload(who: Member, room: str, data: bytes = PLANTED) -> str:
    kept = await who.bus.media.upload(room_id=room, data=data, media_type="text/plain", filename=NAME)
    assert kept["size"] == len(data)
    return str(kept["blob_hash"])


async def test_a_member_gets_the_file_and_nothing_of_it_is_on_the_bus_or_in_the_files_that_are_kept(
    tmp_path: Path,
) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        alice, bob = await two(stack, hub, tmp_path)
        room = await sealed_room(alice, bob)
        blob_hash = await upload(alice, room)
        await alice.bus.message.send(room_id=room, body="see", ext={"media": blob_hash})
        await bob.until(room, lambda bodies: bodies == ["see"])
        await named(bob, room)
        assert await bob.bus.media.get(room_id=room, blob_hash=blob_hash) == PLANTED
        assert await alice.bus.media.get(room_id=room, blob_hash=blob_hash) == PLANTED
        [shown] = await bob.bus.media.list(room_id=room)
        assert (shown["filename"], shown["size"], shown["here"]) == (NAME, len(PLANTED), True)
        [ref] = (await bob.bus.timeline.list(room_id=room))["refs"]
        assert "file_key" not in ref["ext.media"]
    assert blob_hash != f"sha256:{hashlib.sha256(PLANTED).hexdigest()}"
    for words in (PLANTED[:27].decode(), NAME, hashlib.sha256(PLANTED).hexdigest()):
        assert not hub.shows(words)
    for name in ("alice", "bob"):
        [file] = (tmp_path / name / "blobs").iterdir()
        raw = file.read_bytes()
        assert len(raw) == sealed_size(len(PLANTED)) > len(PLANTED)
        assert PLANTED[:27] not in raw


async def test_the_same_words_are_seen_where_the_room_is_not_sealed(tmp_path: Path) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        alice, _ = await two(stack, hub, tmp_path)
        room = (await alice.bus.room.create(name="r"))["room_id"]
        blob_hash = await upload(alice, room)
        assert blob_hash == f"sha256:{hashlib.sha256(PLANTED).hexdigest()}"
        with anyio.fail_after(SECONDS):
            while not hub.shows(NAME):
                await anyio.sleep(0.05)


async def test_the_same_file_has_one_address_in_an_epoch_and_another_after_it(tmp_path: Path) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        alice, bob = await two(stack, hub, tmp_path)
        room = await sealed_room(alice, bob)
        await alice.bus.message.send(room_id=room, body="a key is here")
        await bob.until(room, lambda bodies: len(bodies) == 1)
        first = await upload(alice, room)
        assert await upload(alice, room) == first
        await alice.bus.room.kick(room_id=room, entity=bob.id)
        await alice.bus.message.send(room_id=room, body="under another key")
        with anyio.fail_after(SECONDS):
            while not await alice.service.on_engine(lambda engine: engine.seals.writing_key(room)):
                await anyio.sleep(0.05)
        assert await upload(alice, room) != first
        assert await alice.bus.media.get(room_id=room, blob_hash=first) == PLANTED


def _named_wrongly(engine: Engine, entity: str, name: str, key: str) -> None:
    engine.writing.set_fields(entity, name, [(None, ("file_key",), key)])


async def test_a_key_that_opens_nothing_is_told_and_a_new_upload_mends_it(tmp_path: Path) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        alice, bob = await two(stack, hub, tmp_path)
        room = await sealed_room(alice, bob)
        await alice.bus.message.send(room_id=room, body="a key is here")
        blob_hash = await upload(alice, room)
        name = doc_id("blob_ref", room_id=room, hash=blob_hash.removeprefix("sha256:"))
        for wrong in (b64(b"\0" * 32), "no key at all", b64(b"\0")):
            await alice.service.on_engine(partial(_named_wrongly, entity=alice.id, name=name, key=wrong))
            with pytest.raises(SubletError, match="does not open"):
                await alice.bus.media.get(room_id=room, blob_hash=blob_hash)
        assert await upload(alice, room) == blob_hash
        assert await alice.bus.media.get(room_id=room, blob_hash=blob_hash) == PLANTED
