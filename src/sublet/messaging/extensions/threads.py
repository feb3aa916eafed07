"""EXT-11 Threads: messages that belong to a first one, read apart from the room."""

from __future__ import annotations

from typing import Final

from sublet.messaging.builtins.timeline import DEFAULT_LIMIT, check_limit
from sublet.messaging.calls import message_calls as calls
from sublet.messaging.declaring.after_read import AfterRead
from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.declaration import (
    AfterReadHook,
    AfterWriteHook,
    Declaration,
    Hooks,
    Index,
    PreSendHook,
    Refresh,
    Trigger,
)
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.schema.changes import Happened, Intent
from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Change, Origin
from sublet.messaging.schema.fields import FieldsView
from sublet.protocol.errors import LocalCode
from sublet.protocol.ezagent.ids import RefId, RoomId, is_ref_id
from sublet.protocol.ezagent.order import least_rank, rank_text

THREAD_FIELD: Final = "ext.thread"
LOOKED_BACK: Final = 32
"""Replies of a thread that may not count before it has none."""
_VIEW: Final = "thread_view"
_ROOTS: Final = "thread_roots"


def thread_root(fields: FieldsView) -> RefId | None:
    """Return the first message of the thread that a ref belongs to; None where it belongs to none."""
    value = fields.get(THREAD_FIELD)
    root = value.get("root") if isinstance(value, dict) else None
    return root if isinstance(root, str) and is_ref_id(root) else None


def in_a_thread(subject: Intent | Happened) -> bool:
    """Tell whether a ref that is sent, or was, says that it belongs to a thread."""
    return subject.fields.get(THREAD_FIELD) is not None


def _inject(context: PreSend) -> None:
    """Write the thread in its one form; the id alone will do. Who answers inside a thread stays in it."""
    given, here = context.fields[THREAD_FIELD], context.intent.room_id
    root = thread_root({THREAD_FIELD: {"root": given} if isinstance(given, str) else given})
    ref = context.read_ref(here, root) if root is not None and here is not None else None
    if ref is None:
        raise context.refuse(
            "a thread begins with a message of this room", "Read the room for the ids of messages.", LocalCode.NOT_FOUND
        )
    context.annotate("thread", {"root": thread_root(ref) or root})


def _remember(context: AfterWrite) -> None:
    change, root = context.change, thread_root(context.change.fields)
    if root is not None:
        rank = context.rank()
        place = f"{rank_text(rank)}/{change.entry_id}"
        context.index([IndexEntry(_VIEW, f"{change.room_id}/{root}", place, {})])
        # A thread stands where its first message does by its id; one that claims to begin after its answers, nowhere.
        if least_rank(root) <= rank:
            context.index([IndexEntry(_ROOTS, str(change.room_id), root, {})])


def _filter(context: AfterRead) -> None:
    """Leave only the messages of the thread that is asked for."""
    root = context.query.get("thread")
    if root is not None:
        context.items = [ref for ref in context.items if thread_root(ref) == root]


def _list(
    context: OperationContext,
    room_id: RoomId,
    root: RefId | None = None,
    limit: int = DEFAULT_LIMIT,
    before: RefId | None = None,
) -> calls.RefPage:
    """Return the last replies of a thread; without ``root`` the messages of the room that threads begin with.

    Args:
        context: who asks.
        room_id: a room that they are a member of.
        root: the first message of a thread.
        limit: how many, from 1 to ``timeline.MAX_LIMIT``.
        before: the ``next_cursor`` of an earlier answer.

    Returns:
        ``refs``, the oldest first, and ``next_cursor``, which is None where there are no older ones. A message that a
        thread begins with has its last reply as ``last_thread_reply``.
    """
    context.state(room_id)
    check_limit(limit)
    if root is not None:
        context.ref(room_id, root)
    index, key = (_ROOTS, room_id) if root is None else (_VIEW, f"{room_id}/{root}")
    if root is not None and before is not None:
        before = f"{rank_text(context.rank(room_id, before))}/{before}"
    entries = context.parts.store.scan_index(index, key, limit + 1, before)
    page = [_ref_of(entry) for entry in entries[:limit]]
    query = {"thread": root} if root is not None else None
    shown = context.shown(room_id, page[::-1], query)
    if root is None:
        for ref in shown:
            ref["last_thread_reply"] = _last_reply(context, room_id, ref["ref_id"])
        shown = [ref for ref in shown if ref["last_thread_reply"] is not None]
    return {"refs": shown, "next_cursor": page[-1] if len(entries) > limit else None}


def _ref_of(entry: IndexEntry) -> RefId:
    """Return the message that an entry is of, which stands last in its place."""
    return entry.rank.rpartition("/")[2]


def _last_reply(context: OperationContext, room_id: RoomId, root: RefId) -> RefId | None:
    entries = context.parts.store.scan_index(_VIEW, f"{room_id}/{root}", LOOKED_BACK)
    replies = [_ref_of(entry) for entry in entries]
    counting = context.parts.reading.counting(room_id, replies)
    return next((reply for reply in replies if reply in counting), None)


THREADS = Declaration(
    id="threads",
    version="0.1.0",
    dependencies=("reply-to",),
    origin=Origin.STANDARD,
    hooks=Hooks(
        pre_send=(
            PreSendHook(
                "threads.inject",
                Trigger("timeline_index", Change.INSERT, "has thread_root", in_a_thread),
                30,
                _inject,
            ),
        ),
        # What the specification computes on demand would walk the whole room; this keeps it at hand.
        after_write=(
            AfterWriteHook(
                "threads.remember",
                Trigger("timeline_index", Change.INSERT, "ext.thread present", in_a_thread),
                40,
                _remember,
            ),
        ),
        after_read=(AfterReadHook("threads.filter", Trigger("timeline_index"), 50, _filter),),
    ),
    annotations=(Annotation(AnnotationPlace.ON_REF, "thread", "{ root: ulid }", "message author", signed=True),),
    indexes=(
        Index(
            id=_VIEW,
            input="timeline refs where ext.thread.root == target",
            transform="root_ref_id -> thread replies",
            refresh=Refresh.ON_DEMAND,
            operation_id=calls.list_threads.id,
            read=calls.list_threads.by(_list),
        ),
    ),
)
