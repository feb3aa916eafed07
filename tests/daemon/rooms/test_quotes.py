"""Answers to messages of other rooms: by address, with a format, quoted to whom policy lets read that room."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.daemon.api.conversations import (
    INVITE,
    READ_CONVERSATION,
    READ_MESSAGE,
    SAY,
    SEARCH_MESSAGES,
    Invite,
    ReadConversation,
    Say,
    SearchMessages,
    WhichMessage,
)
from sublet.daemon.api.room_fields import OneMessage, OneRoom
from sublet.daemon.api.room_marks import EDIT_MESSAGE, GET_MESSAGE, EditMessage
from sublet.daemon.api.room_messages import READ_MESSAGES, SEND_MESSAGE, MessageView, ReadMessages, SendMessage
from sublet.daemon.api.rooms import CREATE_ROOM, GET_ROOM, CreateRoom
from sublet.daemon.rooms import conversation_service, mark_service, message_service
from sublet.protocol.errors import LocalCode, SubletError

from .test_conversations import HOST, HUMAN, world

pytestmark = pytest.mark.anyio


async def test_a_quote_is_for_whom_policy_lets_read_its_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path) as at:
        plans, work = [(await at.call(CREATE_ROOM, CreateRoom(name=name), HUMAN)).room_id for name in ("Plans", "Work")]
        asked = await at.call(SEND_MESSAGE, SendMessage(room_id=plans, body="*how many?*", format="markdown"), HUMAN)
        words = Say(to="Work", body="forty", reply_to=asked.ref_id, reply_room="Plans", format="html")
        answer = await at.call(SAY, words, HUMAN)

        async def shown() -> list[object]:
            one = OneMessage(room_id=work, ref_id=answer.ref_id)
            alone = await at.call(READ_MESSAGE, WhichMessage(room="Work", ref_id=answer.ref_id), HUMAN)
            found: list[MessageView] = [
                *(await at.call(READ_MESSAGES, ReadMessages(room_id=work), HUMAN)),
                await at.call(GET_MESSAGE, one, HUMAN),
                *(await at.call(READ_CONVERSATION, ReadConversation(room="Work"), HUMAN)).messages,
                alone,
                *(await at.call(SEARCH_MESSAGES, SearchMessages(query="forty"), HUMAN)).messages,
            ]
            assert [one.format for one in found] == ["html"] * 5
            return [one.about["reply_preview"] for one in found]

        assert all(isinstance(quote, dict) and quote["body"] == "*how many?*" for quote in await shown())
        for module in (conversation_service, mark_service, message_service):
            monkeypatch.setattr(module, "may_read", lambda gate, caller, room_id: room_id != plans)
        assert await shown() == [{"accessible": False}] * 5
        (said,) = await at.call(READ_MESSAGES, ReadMessages(room_id=plans), HUMAN)
        assert said.format == "markdown"


async def test_an_edit_leaves_the_format_or_changes_it(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        room = (await at.call(CREATE_ROOM, CreateRoom(name="Work"), HUMAN)).room_id
        sent = await at.call(SEND_MESSAGE, SendMessage(room_id=room, body="*a*", format="markdown"), HUMAN)
        for given, format in (({}, "markdown"), ({"format": "plain"}, "plain")):
            words = EditMessage.model_validate({"room_id": room, "ref_id": sent.ref_id, "body": "b", **given})
            await at.call(EDIT_MESSAGE, words, HUMAN)
            assert (await at.call(READ_MESSAGES, ReadMessages(room_id=room), HUMAN))[0].format == format


async def test_an_answer_names_a_room_that_its_author_may_read(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        plans, work = [(await at.call(CREATE_ROOM, CreateRoom(name=name), HUMAN)).room_id for name in ("Plans", "Work")]
        asked = await at.call(SEND_MESSAGE, SendMessage(room_id=plans, body="how many?"), HUMAN)
        invited = await at.call(INVITE, Invite(room="Work", entity=at.its), HUMAN)
        assert (invited.room_id, invited.name, invited.entity) == (work, "Work", at.its)
        for words in (
            Say(to=work, body="x", reply_to=asked.ref_id, reply_room="Plans"),
            Say(to=work, body="x", reply_to=asked.ref_id, reply_room=plans),
        ):
            with pytest.raises(SubletError) as refused:
                await at.call(SAY, words, HOST)
            assert refused.value.code is LocalCode.NOT_FOUND
        with pytest.raises(SubletError):
            await at.call(INVITE, Invite(room="Work", entity=f"@nosuch:{at.hers.partition(':')[2]}"), HOST)
        assert set((await at.call(GET_ROOM, OneRoom(room_id=work), HUMAN)).roles) == {at.hers, at.its}
