"""Pages of messages, and single ones, as far as they fit an answer."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from pydantic import ValidationError

from sublet.daemon.api.conversations import (
    READ_CONVERSATION,
    SEARCH_MESSAGES,
    ConversationMessage,
    ReadConversation,
    SearchMessages,
)
from sublet.daemon.api.room_files import FETCH_FILE, FetchFile
from sublet.daemon.operations.calling import Calls
from sublet.mcp_server.answers import Answer
from sublet.mcp_server.present import MAX_ANSWER_CHARS
from sublet.mcp_server.room_answers import Message, Messages, message_facts
from sublet.protocol.errors import LocalCode, SubletError

MAX_BODY_SHOWN: Final = 3_000
MAX_TEXT_BYTES: Final = 1 << 20
"""Of a file that is shown as text."""
MAX_LIST_CHARS: Final = MAX_ANSWER_CHARS - 500
"""Of a list, so that there is room for the fields around it."""


async def page_answer(daemon: Calls, asked: ReadConversation) -> Messages:
    """Return as much of a page as fits an answer."""
    page = await daemon.call(READ_CONVERSATION, asked)
    fitting = _fitting(page.messages, page.room_id)
    if 0 < len(fitting) < len(page.messages):
        # Asked again for as many as fit, so that the cursor is the one before these.
        page = await daemon.call(READ_CONVERSATION, asked.model_copy(update={"limit": len(fitting)}))
        fitting = _fitting(page.messages, page.room_id)
    more = page.next_cursor is not None
    return Messages(
        room_id=page.room_id,
        messages=fitting,
        next_cursor=page.next_cursor,
        more=more,
        next_step="send_message with reply_to answers one." + (" Pass next_cursor for earlier ones." if more else ""),
    )


async def found_answer(daemon: Calls, query: str, room: str | None, limit: int, before: str | None) -> Messages:
    """Return as many of the messages that a search finds as fit an answer, the newest first.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: the cursor is that of another question.
    """
    try:
        asked = SearchMessages(query=query, room=room, limit=limit, before=before)
    except ValidationError:
        raise SubletError(LocalCode.INVALID_ARGUMENT, "cursor is that of another question", "Leave it out.") from None
    found = await daemon.call(SEARCH_MESSAGES, asked)
    fitting = _fitting(found.messages[::-1], None)[::-1]
    cursor = found.next_cursor
    if len(fitting) < len(found.messages):
        cursor = fitting[-1].ref_id[-26:]
    more = cursor is not None
    rest = " Not all messages were looked at yet: the same call finds more." if not found.complete else ""
    return Messages(
        messages=fitting,
        next_cursor=cursor,
        more=more,
        next_step=f"read_messages(room=room_id, ref_id=ref_id) shows one in full.{rest}",
    )


async def with_attachment(daemon: Calls, message: ConversationMessage) -> ConversationMessage:
    """Return a message with the text of the file that it comes with in place of its own."""
    file = message.file
    if file is None:
        raise SubletError(LocalCode.NOT_FOUND, "this message comes with no file", "read_messages shows files.")
    elsewhere = f"A person keeps it by: sublet attach {message.room_id} --get {message.ref_id}"
    if file.size_bytes > MAX_TEXT_BYTES:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"it has more than {MAX_TEXT_BYTES >> 10} KiB, so it is not shown", elsewhere
        )
    try:
        request = FetchFile(room_id=message.room_id, blob_hash=file.blob_hash)
        found = await daemon.call(FETCH_FILE, request)
        text = base64.b64decode(found.data).decode()
    except ValidationError:
        raise SubletError(LocalCode.NOT_FOUND, "its file has a name that no file can have", elsewhere) from None
    except UnicodeDecodeError:
        raise SubletError(LocalCode.INVALID_ARGUMENT, "it is no text in UTF-8", elsewhere) from None
    return message.model_copy(update={"body": text})


def _fitting(messages: Sequence[ConversationMessage], room_id: str | None) -> list[Message]:
    """Return the newest of ``messages`` that fit an answer; at least one."""
    shown: list[Message] = []
    left = MAX_LIST_CHARS
    for message in reversed(messages):
        facts = message_facts(message, MAX_BODY_SHOWN, of_room=room_id)
        left -= size_in_list(facts)
        if shown and left < 0:
            break
        shown.append(facts)
    return shown[::-1]


def in_full(message: ConversationMessage, start: int) -> Messages:
    """Return as much of a message as fits, from a character of its body on."""
    limit = MAX_LIST_CHARS
    body = message.body or ""
    while True:
        facts = message_facts(message, limit, start=start)
        if facts.size() <= MAX_LIST_CHARS or limit < 100:
            break
        limit = limit * 3 // 4
    end = start + limit
    more = end < len(body)
    return Messages(
        room_id=message.room_id,
        messages=[facts],
        next_cursor=str(end) if more else None,
        more=more,
        next_step="Pass next_cursor as cursor for the rest." if more else "That is all of it.",
    )


def size_in_list(facts: Answer) -> int:
    """Return what an answer inside a list costs, with the longer names that it has there."""
    return facts.size() + 16 * (1 + facts.as_text().count("\n"))
