"""EXT-10: files of rooms, kept once, fetched by members alone, and believed by their hash."""

from __future__ import annotations

import hashlib
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
import pytest

from sublet.messaging.backends.blob_files import FileBlobs
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration, Hooks, PreSendHook, Trigger
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.extensions import media
from sublet.messaging.extensions.media import MEDIA_FILES
from sublet.messaging.ports.blobs import BlobRoomError
from sublet.messaging.schema.datatypes import Change, Origin
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.blob import (
    MAX_BLOB_BYTES,
    PIECE_BYTES,
    Piece,
    PieceRequest,
    encode_piece,
    encode_wanted,
    parse_wanted,
)
from sublet.protocol.ezagent.ids import SYSTEM_ENTITY
from sublet.protocol.ezagent.keys import doc_id
from support.members import SECONDS, member, question, room_of
from support.memory_network import MemoryHub
from support.noise import noise
from support.rooms import Clock, Peer, peers, shared_room

pytestmark = pytest.mark.anyio

WITH: tuple[Declaration, ...] = (*BUILT_INS, MEDIA_FILES)


async def test_a_member_gets_the_file_that_a_message_comes_with(tmp_path: Path) -> None:
    hub, data = MemoryHub(), noise(PIECE_BYTES * 2 + 17)
    async with AsyncExitStack() as stack:
        paths = [tmp_path / name for name in ("a", "b")]
        for path in paths:
            path.mkdir()
        alice, bob = [
            await stack.enter_async_context(member(name, number, hub, path, more=(MEDIA_FILES,)))
            for number, (name, path) in enumerate(zip(("alice", "bob"), paths, strict=True), 1)
        ]
        room = await room_of(alice, bob)
        kept = await alice.bus.media.upload(room_id=room, data=data, media_type="image/png", filename="../a/plan.png")
        digest = hashlib.sha256(data).hexdigest()
        assert kept == {
            "blob_hash": f"sha256:{digest}",
            "filename": ".._a_plan.png",
            "media_type": "image/png",
            "size": len(data),
        }
        await alice.bus.message.send(room_id=room, body="see the plan", ext={"media": kept})
        await bob.until(room, lambda bodies: bodies == ["see the plan"])
        [ref] = (await bob.bus.timeline.list(room_id=room))["refs"]
        assert ref["ext.media"] == {
            "blob_hash": kept["blob_hash"],
            "filename": ".._a_plan.png",
            "mime_type": "image/png",
            "size_bytes": len(data),
        }
        other = {"blob_hash": kept["blob_hash"], "filename": "b/copy.png"}
        copy = (await alice.bus.message.send(room_id=room, body="the same", ext={"media": other}))["ref_id"]
        assert (await alice.bus.timeline.get_ref(room_id=room, ref_id=copy))["ext.media"]["filename"] == "b_copy.png"
        with anyio.fail_after(SECONDS):
            while not await bob.bus.media.list(room_id=room):
                await bob.service.asking.room(room)
        assert await bob.bus.media.get(room_id=room, blob_hash=kept["blob_hash"]) == data
        hub.cut(alice.network, bob.network)
        assert await bob.bus.media.get(room_id=room, blob_hash=digest) == data, "from now on it is here"
        assert [path.name for path in (paths[1] / "blobs").iterdir()] == [digest]
        assert (await bob.bus.media.list(room_id=room))[0]["here"]


async def test_a_file_is_for_members_of_a_room_that_names_it_and_has_to_be_the_one(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path, more=(MEDIA_FILES,)) as alice:
        mallory, friend = (Peer(name, 5, clock=Clock(time.time_ns() // 1_000_000)) for name in ("mallory", "friend"))
        room = (await alice.bus.room.create(name="r", invite=[friend.id]))["room_id"]
        other = (await alice.bus.room.create(name="other", invite=[mallory.id]))["room_id"]
        kept = await alice.bus.media.upload(room_id=room, data=b"secret", media_type="text/plain", filename="x")
        key, line = doc_id("blob", hash=kept["blob_hash"].removeprefix("sha256:")), hub.join()

        async def told(peer: Peer, room_id: str, offset: int = 0) -> int:
            payload = question(key, peer, encode_wanted(PieceRequest(room_id, offset)))
            return len(await anyio.to_thread.run_sync(line.query, key, payload, 5.0))

        assert await told(friend, room) == 1
        assert await told(friend, room, 6) == 0
        assert await told(mallory, room) == 0
        assert await told(mallory, other) == 0, "it is not of that room"
        assert await told(friend, other) == 0
        assert await anyio.to_thread.run_sync(line.query, key, encode_wanted(PieceRequest(room, 0)), 5.0) == []


async def test_what_comes_in_place_of_a_file_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path, more=(MEDIA_FILES,)) as alice:
        room = (await alice.bus.room.create(name="r"))["room_id"]
        kept = await alice.bus.media.upload(room_id=room, data=b"the true one", media_type="text/plain", filename="x")
        (tmp_path / "blobs" / kept["blob_hash"].removeprefix("sha256:")).unlink()
        with pytest.raises(SubletError, match="nobody who has this file"):
            await alice.bus.media.get(room_id=room, blob_hash=kept["blob_hash"])
        for lie in (encode_piece(Piece(12, b"another one!")), encode_piece(Piece(13, b"x")), b"", b"\xff" * 40):

            async def fetch(_key: str, _body: bytes, lie: bytes = lie) -> list[bytes]:
                return [lie]

            monkeypatch.setattr(alice.service, "fetch", fetch)
            with pytest.raises(SubletError):
                await alice.bus.media.get(room_id=room, blob_hash=kept["blob_hash"])
        assert list((tmp_path / "blobs").iterdir()) == []


async def test_a_member_that_tells_a_file_byte_by_byte_is_not_asked_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"the true one"
    async with member("alice", 1, MemoryHub(), tmp_path, more=(MEDIA_FILES,)) as alice:
        room = (await alice.bus.room.create(name="r"))["room_id"]
        kept = await alice.bus.media.upload(room_id=room, data=data, media_type="text/plain", filename="x")
        (tmp_path / "blobs" / kept["blob_hash"].removeprefix("sha256:")).unlink()
        asked: list[int] = []

        async def fetch(_key: str, body: bytes) -> list[bytes]:
            asked.append(parse_wanted(body).offset)
            return [encode_piece(Piece(len(data), data[asked[-1] : asked[-1] + 1]))]

        monkeypatch.setattr(alice.service, "fetch", fetch)
        with pytest.raises(SubletError, match="nobody who has this file"):
            await alice.bus.media.get(room_id=room, blob_hash=kept["blob_hash"])
        assert asked == [0]


async def test_what_is_no_file_of_the_room_is_refused(tmp_path: Path) -> None:
    async with member("alice", 1, MemoryHub(), tmp_path, more=(MEDIA_FILES,)) as alice:
        room = (await alice.bus.room.create(name="r"))["room_id"]
        upload = alice.bus.media.upload
        for data, name, kind in (
            (b"", "x", "a/b"),
            (b"x" * (MAX_BLOB_BYTES + 1), "x", "a/b"),
            (b"x", "", "a/b"),
            (b"x", "n" * 300, "a/b"),
            (b"x", "x", "t" * 300),
        ):
            with pytest.raises(SubletError):
                await upload(room_id=room, data=data, media_type=kind, filename=name)
        for blob_hash in ("", "../../etc/passwd", "sha256:" + "0" * 63, "sha256:" + "0" * 64):
            with pytest.raises(SubletError):
                await alice.bus.media.get(room_id=room, blob_hash=blob_hash)
            with pytest.raises(SubletError):
                await alice.bus.message.send(room_id=room, body="see", ext={"media": blob_hash})
        assert (await alice.bus.media.list(room_id=room)) == []
        first = await upload(room_id=room, data=b"same", media_type="a/b", filename="one")
        again = await upload(room_id=room, data=b"same", media_type="c/d", filename="two")
        assert again == first, "a file is named once"


def test_files_have_a_bound_and_go_when_no_room_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = FileBlobs(tmp_path / "blobs", 10)
    assert list(blobs.all()) == []
    digest = blobs.put(b"12345678")
    assert blobs.put(b"12345678") == digest
    with pytest.raises(BlobRoomError):
        blobs.put(b"123")
    with pytest.raises(ValueError, match="hash"):
        blobs.read("../state", 0, 1)
    (tmp_path / "blobs" / "foreign").write_text("kept")
    assert [(name, size) for name, size, _ in blobs.all()] == [(digest, 8)]
    blobs.drop(digest)
    assert blobs.size(digest) is None

    [alice] = peers("alice", declarations=WITH)
    room = shared_room(alice)
    kept = media._keep(OperationContext(alice.engine.operating, alice.id), room, b"named", "a/b", "x")["blob_hash"]
    alice.engine.commit()
    stray = alice.blobs.put(b"stray")
    monkeypatch.setattr(media, "GRACE_SECONDS", -1.0)
    media._sweep(OperationContext(alice.engine.operating, SYSTEM_ENTITY))
    assert set(alice.blobs.kept) == {kept.removeprefix("sha256:")}
    assert stray not in alice.blobs.kept


async def test_an_extension_may_refuse_files_before_a_room_names_them(tmp_path: Path) -> None:
    def refuse(context: PreSend) -> None:
        if context.fields["data"].startswith(b"MZ"):
            raise context.refuse("programs are not sent here")

    gate = Declaration(
        id="gate",
        version="1",
        dependencies=("media",),
        origin=Origin.THIRD_PARTY,
        hooks=Hooks(pre_send=(PreSendHook("gate.refuse", Trigger("global_blob", Change.INSERT), 100, refuse),)),
    )
    async with member("alice", 1, MemoryHub(), tmp_path, more=(MEDIA_FILES, gate)) as alice:
        room = (await alice.bus.room.create(name="r"))["room_id"]
        send = partial(alice.bus.media.upload, room_id=room, media_type="x/y", filename="it")
        with pytest.raises(SubletError, match="programs"):
            await send(data=b"MZ...")
        await send(data=b"text")
        assert [found["size"] for found in await alice.bus.media.list(room_id=room)] == [4]
