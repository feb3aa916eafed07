"""Messages by their words: of the rooms that one is in, as they say it now, and of what is gone nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from sublet.daemon.api.conversations import SEARCH_MESSAGES, FoundMessages, SearchMessages
from sublet.daemon.api.room_fields import OneRoom
from sublet.daemon.api.room_marks import (
    DELETE_MESSAGE,
    EDIT_MESSAGE,
    MODERATE_MESSAGE,
    DeleteMessage,
    EditMessage,
    Moderate,
)
from sublet.daemon.api.room_messages import SEND_MESSAGE, SendMessage
from sublet.daemon.api.rooms import CREATE_ROOM, INVITE_TO_ROOM, LEAVE_ROOM, CreateRoom, InviteToRoom
from sublet.messaging.backends import sqlite_search
from sublet.messaging.builtins import search as search_module
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.engine.engine import Engine
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import SYSTEM_ENTITY

from .test_conversations import HOST, HUMAN, World, world

pytestmark = pytest.mark.anyio


async def found(at: World, query: str, caller: Subject = HUMAN, **given: object) -> list[str | None]:
    return [one.body for one in (await search(at, query, caller, **given)).messages]


async def search(at: World, query: str, caller: Subject = HUMAN, **given: object) -> FoundMessages:
    return await at.call(SEARCH_MESSAGES, SearchMessages.model_validate({"query": query, **given}), caller)


async def room_with(at: World, *bodies: str, name: str = "Work") -> tuple[str, list[str]]:
    room = (await at.call(CREATE_ROOM, CreateRoom(name=name), HUMAN)).room_id
    send = partial(at.call, SEND_MESSAGE)
    return room, [(await send(SendMessage(room_id=room, body=body), HUMAN)).ref_id for body in bodies]


def words_kept(path: Path) -> list[str]:
    with closing(sqlite3.connect(path / "messaging.db")) as database:
        return sorted(body for (body,) in database.execute("SELECT body FROM words"))


def tidy(engine: Engine) -> None:
    search_module._tidy(OperationContext(engine.operating, SYSTEM_ENTITY))


async def test_what_all_words_of_a_query_begin_is_found_the_newest_first(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        room, _ = await room_with(at, "The flaky test fails", "Flaky tests, again", "Something else", "ÉTÉ à Köln")
        assert await found(at, "flaky test") == ["Flaky tests, again", "The flaky test fails"]
        assert await found(at, "FLAK") == ["Flaky tests, again", "The flaky test fails"]
        assert await found(at, "flaky again") == ["Flaky tests, again"]
        assert await found(at, "ete koln") == ["ÉTÉ à Köln"]
        assert await found(at, "laky") == []
        first = await search(at, "flaky", limit=1)
        assert [one.body for one in first.messages] == ["Flaky tests, again"]
        assert first.complete
        assert await found(at, "flaky", before=first.next_cursor) == ["The flaky test fails"]
        await at.call(SEND_MESSAGE, SendMessage(room_id=room, body="flaky no more"), HUMAN)
        assert len(await found(at, "flaky")) == 3


async def test_only_rooms_that_one_is_in_are_searched(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        room, _ = await room_with(at, "the secret word")
        assert await found(at, "secret") == ["the secret word"]
        assert await found(at, "secret", HOST) == []
        with pytest.raises(SubletError) as refused:
            await found(at, "secret", HOST, room=room)
        assert refused.value.code is LocalCode.NOT_FOUND
        await at.call(INVITE_TO_ROOM, InviteToRoom(room_id=room, entity=at.its), HUMAN)
        assert await found(at, "secret", HOST) == ["the secret word"]
        await at.call(LEAVE_ROOM, OneRoom(room_id=room), HOST)
        assert await found(at, "secret", HOST) == []
        with pytest.raises(SubletError):
            await found(at, "secret", Subject("peer", "bob"))


async def test_what_was_edited_deleted_or_taken_down_is_not_found_and_not_kept(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        room, (edited, deleted, redacted, stays) = await room_with(
            at, "alpha edited", "alpha deleted", "alpha redacted", "alpha stays"
        )
        assert len(await found(at, "alpha")) == 4
        await at.call(EDIT_MESSAGE, EditMessage(room_id=room, ref_id=edited, body="beta"), HUMAN)
        await at.call(EDIT_MESSAGE, EditMessage(room_id=room, ref_id=edited, body="gamma"), HUMAN)
        await at.call(DELETE_MESSAGE, DeleteMessage(room_id=room, ref_id=deleted), HUMAN)
        await at.call(MODERATE_MESSAGE, Moderate(room_id=room, ref_id=redacted, action="redact"), HUMAN)
        assert words_kept(tmp_path) == ["alpha stays"], "at once, before anybody searches"
        assert await found(at, "alpha") == ["alpha stays"]
        assert await found(at, "gamma") == ["gamma"]
        assert await found(at, "beta") == []
        for _ in range(5):
            await at.service.on_engine(tidy)
        with closing(sqlite3.connect(tmp_path / "messaging.db")) as database:
            database.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', 'words', 'row')")
            terms = {term for (term,) in database.execute("SELECT term FROM temp.vocabulary")}
            segments = [bytes(block) for (block,) in database.execute("SELECT block FROM words_data")]
        assert terms == {"alpha", "stays", "gamma"}
        assert not any(word in block for block in segments for word in (b"redacted", b"deleted", b"beta"))
        assert stays


async def test_a_room_that_is_forgotten_leaves_no_words(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        room, _ = await room_with(at, "gone with its room")
        await room_with(at, "stays here", name="Other")
        await found(at, "gone")
        assert words_kept(tmp_path) == ["gone with its room", "stays here"]
        await at.service.forgetting.rooms([room])
        assert words_kept(tmp_path) == ["stays here"]


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "a OR b",
        "NEAR(a b)",
        "body:x",
        "* *",
        "a AND",
        "NOT",
        "^a",
        "{body} : a",
        'x" OR "y',
        "a\0b",
        "a-b+c",
        "(a",
    ],
)
async def test_no_syntax_of_the_index_comes_from_a_query(tmp_path: Path, query: str) -> None:
    async with world(tmp_path) as at:
        await room_with(at, "a", "b", "or", "near", "not", "x y")
        try:
            words = search_module.words_of(query)
        except SubletError:
            with pytest.raises(SubletError):
                await found(at, query)
            return
        bodies = await found(at, query)
        assert all(word.casefold() in (body or "").split() for body in bodies for word in words), bodies


async def test_how_much_work_a_search_is_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path) as at:
        await room_with(at, *(f"word {number}" for number in range(60)))
        assert len(await found(at, "word", limit=50)) == 50
        monkeypatch.setattr(sqlite_search, "STEPS_AT_ONCE", 50)
        monkeypatch.setattr(sqlite_search, "MAX_STEPS", 200)
        with pytest.raises(SubletError) as refused:
            await found(at, "word")
        assert refused.value.code is LocalCode.INVALID_ARGUMENT
        monkeypatch.undo()
        for query in ("w " * 17, "!?"):
            with pytest.raises(SubletError):
                await found(at, query)


async def test_a_search_that_has_not_looked_at_all_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "BATCH", 2)
    monkeypatch.setattr(search_module, "MAX_BATCHES", 2)
    async with world(tmp_path) as at:
        await room_with(at, *(f"word {number}" for number in range(7)))
        before = await search(at, "word")
        assert not before.complete
        after = await search(at, "word")
        assert (len(after.messages), after.complete) == (7, True)
        assert len(before.messages) < 7
