"""EXT-13: the picture that a profile names, who is told it, and what nobody gets by naming its hash."""

from __future__ import annotations

import base64
import hashlib
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
import pytest

from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.engine.engine import Engine
from sublet.messaging.extensions import media
from sublet.messaging.extensions.media import MEDIA_FILES
from sublet.messaging.extensions.pictures import named_pictures
from sublet.messaging.extensions.profile import PROFILES
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.blob import Piece, PieceRequest, encode_piece, encode_wanted
from sublet.protocol.ezagent.keys import doc_id
from support.members import SECONDS, Member, member, question, room_of
from support.memory_network import MemoryHub
from support.pictures import NO_PICTURES, SVG, png
from support.rooms import Peer

pytestmark = pytest.mark.anyio
WITH = (MEDIA_FILES, PROFILES)
HUGE = NO_PICTURES["a canvas of gigabytes"]


async def named(who: Member, whose: Member, avatar: str) -> None:
    """Wait until somebody knows which picture a profile names."""
    with anyio.fail_after(SECONDS):
        while True:
            try:
                if (await who.bus.profile.get(entity=whose.id))["frontmatter"].get("avatar_hash") == avatar:
                    return
            except SubletError:
                pass
            await anyio.sleep(0.02)


def claim(entity: str, avatar: str, engine: Engine) -> None:
    """Name a picture past the operation, as a daemon does that checks nothing."""
    engine.writing.set_fields(
        entity, doc_id("profile", entity_id=entity), [(None, ("frontmatter", "avatar_hash"), avatar)]
    )


async def both(stack: AsyncExitStack, hub: MemoryHub, tmp_path: Path) -> tuple[Member, Member]:
    made = []
    for number, name in enumerate(("alice", "bob"), 1):
        (tmp_path / name).mkdir()
        made.append(await stack.enter_async_context(member(name, number, hub, tmp_path / name, more=WITH)))
    return made[0], made[1]


async def test_who_shares_a_room_is_shown_a_picture_and_has_it_from_then_on(tmp_path: Path) -> None:
    hub, data = MemoryHub(), png(3, 3)
    async with AsyncExitStack() as stack:
        alice, bob = await both(stack, hub, tmp_path)
        none = {"entity_id": alice.id, "digest": None, "media_type": None, "data": None}
        assert await alice.bus.profile.picture() == none
        made = await alice.bus.profile.set_picture(data=data)
        digest = hashlib.sha256(data).hexdigest()
        avatar = f"sha256:{digest}"
        assert made["frontmatter"] == {"entity_type": "agent", "avatar_hash": avatar}
        shown = {
            "entity_id": alice.id,
            "digest": digest,
            "media_type": "image/png",
            "data": base64.b64encode(data).decode(),
        }
        assert await alice.bus.profile.picture() == shown
        await room_of(alice, bob)
        await named(bob, alice, avatar)
        known = {**none, "digest": digest}
        assert await bob.bus.profile.picture(entity=alice.id, known=digest) == known, "it is not even fetched"
        assert await bob.bus.profile.picture(entity=alice.id) == shown
        hub.cut(alice.network, bob.network)
        assert await bob.bus.profile.picture(entity=alice.id) == shown, "from now on it is here"
        # Taken away, it is shown no more.
        assert "avatar_hash" not in (await alice.bus.profile.update(frontmatter={"avatar_hash": None}))["frontmatter"]
        assert await alice.bus.profile.picture() == none


@pytest.mark.parametrize("data", NO_PICTURES.values(), ids=NO_PICTURES)
async def test_what_is_no_picture_is_not_set(tmp_path: Path, data: bytes) -> None:
    async with member("alice", 1, MemoryHub(), tmp_path, more=WITH) as alice:
        with pytest.raises(SubletError) as refused:
            await alice.bus.profile.set_picture(data=data)
        assert refused.value.code is LocalCode.INVALID_ARGUMENT
        assert not (tmp_path / "blobs").exists() or list((tmp_path / "blobs").iterdir()) == []


async def test_nobody_gets_a_file_by_calling_it_their_picture(tmp_path: Path) -> None:
    """A file of a room is had by its members; who names its hash in a profile is told nothing, here or over there."""
    hub, secret = MemoryHub(), png(7, 7)
    async with AsyncExitStack() as stack:
        alice, bob = await both(stack, hub, tmp_path)
        private = (await alice.bus.room.create(name="private"))["room_id"]
        kept = await alice.bus.media.upload(room_id=private, data=secret, media_type="image/png", filename="x.png")
        room = await room_of(alice, bob)
        for one in (alice, bob):
            with pytest.raises(SubletError, match="by its file"):
                await one.bus.profile.update(frontmatter={"avatar_hash": kept["blob_hash"]})
        await bob.bus.profile.update(frontmatter={})
        await bob.service.on_engine(partial(claim, bob.id, kept["blob_hash"]))
        await named(alice, bob, kept["blob_hash"])
        with pytest.raises(SubletError) as refused:
            await bob.bus.profile.picture()
        assert refused.value.code is LocalCode.UNAVAILABLE
        his, line = Peer("bob", 9), hub.join()
        key = doc_id("blob", hash=kept["blob_hash"].removeprefix("sha256:"))
        asked = question(key, his, encode_wanted(PieceRequest(room, 0)))
        assert await anyio.to_thread.run_sync(line.query, key, asked, 5.0) == []


async def test_what_comes_in_place_of_a_picture_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = MemoryHub()
    async with AsyncExitStack() as stack:
        alice, bob = await both(stack, hub, tmp_path)
        await room_of(alice, bob)
        other = encode_piece(Piece(5, b"other"))
        for data, answers in (
            (SVG, [encode_piece(Piece(len(SVG), SVG))]),
            (HUGE, [encode_piece(Piece(len(HUGE), HUGE))]),
            (png(), [b"", b"\xff" * 40, other, encode_piece(Piece(len(png()) + 1, png()))]),
        ):
            avatar = f"sha256:{hashlib.sha256(data).hexdigest()}"
            await alice.bus.profile.update(frontmatter={})
            await alice.service.on_engine(partial(claim, alice.id, avatar))
            await named(bob, alice, avatar)

            async def fetch(_key: str, _body: bytes, answers: list[bytes] = answers) -> list[bytes]:
                return answers

            monkeypatch.setattr(bob.service, "fetch", fetch)
            with pytest.raises(SubletError) as refused:
                await bob.bus.profile.picture(entity=alice.id)
            assert refused.value.code is LocalCode.UNAVAILABLE
        blobs = tmp_path / "bob" / "blobs"
        assert not blobs.exists() or list(blobs.iterdir()) == []


async def test_a_picture_that_a_profile_names_is_not_swept_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media, "GRACE_SECONDS", -1.0)
    async with member("alice", 1, MemoryHub(), tmp_path, more=WITH) as alice:
        await alice.bus.profile.set_picture(data=png(1, 1))
        made = await alice.bus.profile.set_picture(data=png(2, 2))
        sweep = next(one.rebuild for one in MEDIA_FILES.indexes if one.rebuild is not None)
        await alice.service.on_engine(lambda engine: sweep(OperationContext(engine.operating, alice.id)))
        (left,) = (tmp_path / "blobs").iterdir()
        named_here = await alice.service.on_engine(lambda engine: named_pictures(engine.operating, 9))
        assert named_here == {left.name}
        assert f"sha256:{left.name}" == made["frontmatter"]["avatar_hash"]
