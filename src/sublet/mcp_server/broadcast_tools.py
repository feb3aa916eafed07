"""Saying something to all nodes, and reading what they say: the tools for talking, with one room's name."""

from __future__ import annotations

from sublet.daemon.api.federation import (
    BROADCAST,
    BROADCAST_ROOM,
    LIST_BROADCASTS,
    Broadcast,
    BroadcastView,
    ListBroadcasts,
)
from sublet.mcp_server.call import Call
from sublet.mcp_server.room_answers import Message, Messages, ReceiptFacts, Sent, Wrote
from sublet.mcp_server.room_arguments import ReadMessages, SendMessage
from sublet.mcp_server.room_pages import MAX_LIST_CHARS, size_in_list
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean, clean_line


def is_broadcast(room: str | None) -> bool:
    """Tell whether a room is that in which nodes speak to all."""
    return room is not None and room.startswith(BROADCAST_ROOM)


async def say_to_all(call: Call, given: SendMessage) -> Sent:
    """Say something to all nodes.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for what only a room of people has.
    """
    if extra := sorted(given.model_fields_set - {"to", "message"}):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"{', '.join(extra)} can't go with {BROADCAST_ROOM}", "Leave that out."
        )
    sent = await call.operations.call(BROADCAST, Broadcast(text=given.message))
    recipients = [
        ReceiptFacts(
            entity=one.peer,
            receipt="undeliverable" if one.why_not else "delivered",
            reason=clean_line(one.why_not, 200) or None,
        )
        for one in sent.heard
    ]
    least = "delivered" if recipients and all(one.receipt == "delivered" for one in recipients) else "undeliverable"
    return Sent(
        ref_id=sent.message_id,
        room_id=sent.room_id,
        created_at=sent.at,
        author=sent.from_agent,
        receipt="delivered" if least == "delivered" else "undeliverable",
        recipients=recipients,
        recipients_total=len(recipients),
        next_step=f"read_messages(room={BROADCAST_ROOM!r}) shows what others say.",
    )


async def read_broadcasts(call: Call, given: ReadMessages) -> Messages:
    """Show what nodes said to all, the newest of it.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for what only a room of people has.
    """
    if extra := sorted(given.model_fields_set - {"room", "limit"}):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"{', '.join(extra)} can't go with {BROADCAST_ROOM}", "Leave that out."
        )
    found = await call.operations.call(LIST_BROADCASTS, ListBroadcasts(limit=given.limit))
    shown: list[Message] = []
    left = MAX_LIST_CHARS
    for one in reversed(found):
        message = _message(one)
        left -= size_in_list(message)
        if shown and left < 0:
            break
        shown.append(message)
    return Messages(
        room_id=BROADCAST_ROOM,
        messages=shown[::-1],
        more=len(shown) < len(found),
        next_step=f"send_message(to={BROADCAST_ROOM!r}) says something to all nodes.",
    )


def _message(one: BroadcastView) -> Message:
    text = clean(one.text)
    return Message(
        ref_id=one.message_id,
        author=one.from_agent,
        own=one.peer is None,
        created_at=one.at,
        text=text if one.peer is None else None,
        from_peer=Wrote(peer=one.peer, text=text) if one.peer is not None else None,
    )
