"""Search: messages by their words, of the rooms that whoever asks is in.

Rules: the words are taken in when somebody searches, as a reader of the room sees the message then.
What is found is read again before it is shown, so that a message that was deleted, taken down, or counts no more, is
not. Weak: in a database of years the first search takes in only some of it, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from sublet.messaging.builtins.timeline import DELETED
from sublet.messaging.calls import message_calls as calls
from sublet.messaging.declaring.asking import AskingContext
from sublet.messaging.declaring.declaration import Declaration, Index, Operation, Refresh
from sublet.messaging.declaring.operating import OperationContext, OperationParts
from sublet.messaging.ports.search_store import found_at
from sublet.messaging.schema.datatypes import Origin
from sublet.messaging.schema.fields import Fields
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId, is_ref_id
from sublet.protocol.ezagent.order import stands_at_ms
from sublet.protocol.patterns import Pattern

MAX_QUERY_CHARS: Final = 500
MAX_WORDS: Final = 16
MAX_LIMIT: Final = 50
BATCH: Final = 100
"""Messages that are taken in at one go on the engine's thread: some milliseconds."""
MAX_BATCHES: Final = 100
"""Of one search; what is left then is taken in by the next ones."""
IDLE_SECONDS: Final = 30.0
_WORD = Pattern(r"[\pL\pN\pM\p{Co}]+")


def words_of(query: str) -> list[str]:
    """Return the words of a query.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: it has none, or too many.
    """
    words = _WORD.findall(query[:MAX_QUERY_CHARS])
    if not 0 < len(words) <= MAX_WORDS or len(query) > MAX_QUERY_CHARS:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"a search has 1 to {MAX_WORDS} words of letters or digits, {MAX_QUERY_CHARS} characters in all",
            "Such as: sublet search --messages flaky test",
        )
    return words


async def _search(
    context: AskingContext,
    query: str,
    rooms: list[RoomId] | None = None,
    limit: int = calls.DEFAULT_FOUND,
    before: str | None = None,
) -> calls.MessagesFound:
    """Return messages that hold all words of a query, the newest first.

    Args:
        context: who asks.
        query: words; their beginnings are enough.
        rooms: only in these; all that the caller is in by default.
        limit: how many, from 1 to ``MAX_LIMIT``.
        before: the ``next_cursor`` of an earlier answer.

    Raises:
        SubletError: ``INVALID_ARGUMENT``; ``NOT_FOUND``: a room that the caller is not in.
    """
    words = words_of(query)
    if not 0 < limit <= MAX_LIMIT or (before is not None and not is_ref_id(before)):
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"limit is from 1 to {MAX_LIMIT}", "Ask for one page.")
    left = MAX_BATCHES
    while left and await context.engine(partial(_take_in, rooms=rooms)):
        left -= 1
    found = partial(_find, words=words, rooms=rooms, limit=limit, before=before, complete=left > 0)
    return await context.engine(found)


def _rooms(context: OperationContext, rooms: Sequence[RoomId] | None) -> list[RoomId]:
    if rooms is None:
        return [state.room_id for state in context.parts.here.of(context.entity)]
    return [context.state(room_id).room_id for room_id in rooms]


def _take_in(context: OperationContext, rooms: Sequence[RoomId] | None) -> bool:
    """Take in some messages that were not looked at yet; tell whether there may be more."""
    return _read_some(context.parts, context.entity, _rooms(context, rooms), BATCH)


def _read_some(parts: OperationParts, reader: EntityId, rooms: Sequence[RoomId], limit: int) -> bool:
    search = parts.store.search
    again, new = search.due(rooms, limit), search.unread(rooms, limit)
    if not again and not new:
        return False
    waiting = 0
    with parts.store.transaction():
        for room_id, document, ref_id in again:
            waiting += _take_one(parts, reader, room_id, document, [ref_id])
        for done in new:
            _take_one(parts, reader, done.room_id, done.document, done.ref_ids)
            search.looked_at(done)
    # What has no text yet waits for another search.
    return len(again) - waiting >= limit or sum(len(done.ref_ids) for done in new) >= limit


def _take_one(parts: OperationParts, reader: EntityId, room_id: RoomId, document: int, ref_ids: Sequence[RefId]) -> int:
    """Take in what messages of a room say; return how many have no text yet."""
    search, waiting = parts.store.search, 0
    there = [ref for ref_id in ref_ids if (ref := parts.reading.ref_in(room_id, ref_id)) is not None]
    shown = {str(ref["ref_id"]): ref for ref in parts.shows.shown(reader, room_id, there)}
    for ref_id in ref_ids:
        ref = shown.get(ref_id)
        body = _text(ref) if ref is not None else None
        if body is not None:
            search.put(document, ref_id, body, _at(parts, ref_id))
        elif ref is not None and _is_to_come(ref):
            search.doubt(ref_id)
            waiting += 1
        else:
            search.drop(ref_id)
    return waiting


def _at(parts: OperationParts, ref_id: RefId) -> str:
    """Return where a message stands among those that are found: by its time in its room, none of them to come."""
    found = parts.store.find_entry(ref_id)
    rank = parts.store.ranks.of(found[0].number, found[1]) if found is not None else None
    return found_at(ref_id, min(stands_at_ms(rank or 0), parts.now_ms()))


def _text(ref: Fields) -> str | None:
    """Return what a message says to everybody in its room; None for nothing."""
    body = ref.get("body")
    return body if isinstance(body, str) and "redacted" not in ref and ref["status"] != DELETED else None


def _is_to_come(ref: Fields) -> bool:
    return ref.get("body") is None and not {"redacted", "purged"} & ref.keys() and ref["status"] != DELETED


def _find(
    context: OperationContext,
    words: list[str],
    rooms: Sequence[RoomId] | None,
    limit: int,
    before: str | None,
    complete: bool,
) -> calls.MessagesFound:
    parts = context.parts
    places = parts.store.search.find(words, _rooms(context, rooms), limit + 1, before)
    page = places[:limit]
    found: list[calls.Ref] = []
    stale: list[RefId] = []
    for room_id, ref_id in page:
        shown = [ref for ref in context.shown(room_id, [ref_id]) if _text(ref) is not None]
        found += shown
        stale += [] if shown else [ref_id]
    if stale:
        with parts.store.transaction():
            for ref_id in stale:
                parts.store.search.doubt(ref_id)
    more = len(places) > limit
    return {"refs": found, "next_cursor": page[-1][1][-26:] if more else None, "complete": complete}


def _tidy(context: OperationContext) -> None:
    """Overwrite some of what was forgotten."""
    with context.parts.store.transaction():
        context.parts.store.search.tidy()


SEARCH: Final = Declaration(
    id="search",
    version="1",
    dependencies=("timeline", "message"),
    origin=Origin.BUILT_IN,
    indexes=(
        Index(
            id="message_words",
            input="timeline refs of all joined rooms, as their readers see them",
            transform="words -> refs",
            refresh=Refresh.PERIODIC,
            rebuild=_tidy,
            every_seconds=IDLE_SECONDS,
        ),
    ),
    operations=(Operation(calls.search_messages.id, calls.search_messages.by_waiting(_search), waits=True),),
)
