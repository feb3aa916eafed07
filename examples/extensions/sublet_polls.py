"""Polls in rooms: a message "poll: Lunch? pizza | pasta" asks, every member has one vote, its author closes it.

All of an extension in one file, with nothing of the engine changed; docs/extensions.md walks through it.
"""

from __future__ import annotations

from typing import Any

from sublet.messaging.extending import (
    AfterRead,
    AfterReadHook,
    AfterWrite,
    AfterWriteHook,
    Annotation,
    AnnotationPlace,
    Change,
    Datatype,
    Declaration,
    Happened,
    Hooks,
    Index,
    IndexEntry,
    Intent,
    LocalCode,
    Operation,
    OperationContext,
    PreSend,
    PreSendHook,
    Refresh,
    StorageType,
    SubletError,
    Trigger,
    doc_id,
)

POLL = "poll"
VOTES = "poll_votes"
MAX_OPTIONS = 10
MAX_OPTION_CHARS = 80
MAX_LISTED = 100


# 1. Before a message is sent: what begins with "poll:" gets its options as an annotation, or is refused.


def recognise(context: PreSend) -> None:
    """Annotate a message that asks something with the options that it names."""
    content = context.content(str(context.fields["content_id"]))
    text = str(content["body"]) if content is not None else ""
    if not text.startswith("poll:"):
        return
    question, mark, rest = text.removeprefix("poll:").partition("?")
    options = [option.strip() for option in rest.split("|")]
    if not mark or not is_options(options):
        raise context.refuse(
            f"a poll has a question and from 2 to {MAX_OPTIONS} different options", "poll: Lunch? pizza | pasta"
        )
    context.annotate(POLL, {"question": f"{question.strip()}?", "options": options})


def is_options(options: object) -> bool:
    """Tell whether these can be the options of a poll; peers may have written anything."""
    return (
        isinstance(options, list)
        and 2 <= len(options) <= MAX_OPTIONS
        and all(isinstance(option, str) and 0 < len(option) <= MAX_OPTION_CHARS for option in options)
        and len(set(options)) == len(options)
    )


def options_of(ref: dict[str, Any]) -> list[str]:
    """Return the options of a message; none where it is no poll."""
    poll = ref.get(f"ext.{POLL}")
    options = poll.get("options") if isinstance(poll, dict) else None
    return list(options) if isinstance(options, list) and is_options(options) else []


def is_vote(intent: Intent) -> bool:
    """Tell whether somebody is about to vote."""
    return bool(intent.fields["path"][0] == f"ext.{VOTES}")


def check_vote(context: PreSend) -> None:
    """Refuse a vote for what is no option, or that is somebody else's."""
    path, value = context.fields["path"], context.fields["value"]
    ref = context.read_ref(str(context.intent.room_id), str(context.intent.target))
    options = options_of(ref) if ref is not None else []
    if path != (f"ext.{VOTES}", context.intent.entity) or (value is not None and value not in options):
        raise context.refuse("this is none of the options", f"They are: {', '.join(options)}." if options else "")


# 2. After something was accepted, here and on every peer: feed the index, and tell events.


def opened(context: AfterWrite) -> None:
    """Keep a new poll in the list of its room, and tell of it."""
    change = context.change
    options = options_of(dict(change.fields))
    if options:
        context.index([IndexEntry("polls", str(change.room_id), str(change.entry_id), {})])
        context.emit("poll.opened", {"ref_id": change.entry_id, "by": change.signer, "options": list(options)})


def votes(change: Happened) -> bool:
    """Tell whether a change is a vote of whoever made it."""
    return change.path == (f"ext.{VOTES}", change.signer)


def voted(context: AfterWrite) -> None:
    """Tell of a vote; what is none of the options was written by a peer that does not refuse it, and means nothing."""
    change = context.change
    ref = context.read_ref(str(change.entry_id))
    if ref is not None and (change.value is None or change.value in options_of(ref)):
        context.emit("poll.voted", {"ref_id": change.entry_id, "by": change.signer, "option": change.value})


def closed(context: AfterWrite) -> None:
    """Tell that a poll was closed, where its author did that: what the rule forbids is accepted, and does not count."""
    ref_id, _, _ = context.change.path[0].partition(":@")
    ref = context.read_ref(ref_id)
    if ref is not None and context.change.path == (closing_key(ref),) and context.counts():
        context.emit("poll.closed", {"ref_id": ref_id, "by": context.change.signer})


# 3. When messages are read: add the count. What is stored stays as it is.


def count(context: AfterRead) -> None:
    """Add to each poll how many votes each option has, or had when its author closed it."""
    found = [ref for ref in context.items if options_of(ref)]
    closings = context.read_document(document(context.room_id)) if found else {}
    for ref in found:
        ref["poll"] = tally(ref, closings)


def tally(ref: dict[str, Any], closings: dict[str, Any]) -> dict[str, Any]:
    """Return the counts of a poll, the options in their order."""
    closing = closings.get(closing_key(ref))
    given = closing if isinstance(closing, dict) else ref.get(f"ext.{VOTES}")
    chosen = list(given.values()) if isinstance(given, dict) else []
    return {"counts": {option: chosen.count(option) for option in options_of(ref)}, "closed": isinstance(closing, dict)}


def document(room_id: str) -> str:
    """Return the id of the document in which this extension keeps what is closed."""
    return doc_id("ext", room_id=room_id, ext_id="polls")


def closing_key(ref: dict[str, Any]) -> str:
    """Return the key under which only a poll's author can close it: the rule wants the signer in each key."""
    return f"{ref['ref_id']}:{ref['author']}"


# 4. What can be done and asked: ``await bus.polls.vote(…)``, ``bus.polls.close(…)``, ``bus.polls.list(…)``.


def vote(context: OperationContext, room_id: str, ref_id: str, option: str | None) -> None:
    """Vote for an option, or for none any more.

    Raises:
        SubletError: there is no such poll, or no such option, or it is closed.
    """
    ref = poll(context, room_id, ref_id)
    if closing_key(ref) in context.read_document(document(room_id)):
        raise SubletError(LocalCode.CONFLICT, "this poll is closed", "Its author may open another one.")
    context.annotate(ref, VOTES, context.entity, option)


def close(context: OperationContext, room_id: str, ref_id: str) -> dict[str, Any]:
    """Close a poll of the caller, and return its count.

    Raises:
        SubletError: there is no such poll, or it is another's.
    """
    ref = poll(context, room_id, ref_id)
    if ref["author"] != context.entity:
        raise SubletError(LocalCode.POLICY_DENIED, "only its author closes a poll", "Ask them to.")
    given = ref.get(f"ext.{VOTES}")
    final = given if isinstance(given, dict) else {}
    context.set_field(document(room_id), (closing_key(ref),), final)
    return tally(ref, {closing_key(ref): final})


def poll(context: OperationContext, room_id: str, ref_id: str) -> dict[str, Any]:
    """Return a message that is a poll."""
    ref = context.ref(room_id, ref_id)
    if not options_of(ref):
        raise SubletError(LocalCode.NOT_FOUND, "this message is no poll", "polls.list names them.")
    return ref


def polls(context: OperationContext, room_id: str) -> list[dict[str, Any]]:
    """Return the last polls of a room, the newest first, with their counts."""
    context.state(room_id)  # refuses whoever is no member
    entries = context.scan_index("polls", room_id, MAX_LISTED)
    found = context.shown(room_id, [entry.rank for entry in entries])
    return [{"ref_id": ref["ref_id"], **ref["poll"]} for ref in found if "poll" in ref]


# 5. The declaration, which is all that the engine sees.

POLLS = Declaration(
    id="polls",
    version="1.0.0",
    dependencies=("timeline", "message"),
    datatypes=(
        Datatype(
            id="poll_closings",
            storage_type=StorageType.CRDT_MAP,
            key_pattern="ezagent/{room_id}/ext/polls/{state|updates}",
            persistent=True,
            writer_rule="signer ∈ room.members AND annotation_key contains signer_id",
        ),
    ),
    annotations=(
        Annotation(AnnotationPlace.ON_REF, POLL, "{ question, options }"),
        Annotation(
            AnnotationPlace.ON_REF,
            VOTES,
            "entity_id -> option",
            writer_rule="any room member AND annotation_key contains signer_id",
            nested=True,
        ),
    ),
    hooks=Hooks(
        pre_send=(
            PreSendHook("polls.recognise", Trigger("timeline_index", Change.INSERT), 100, recognise),
            PreSendHook(
                "polls.check_vote", Trigger("timeline_index", Change.UPDATE, "a vote", is_vote), 100, check_vote
            ),
        ),
        after_write=(
            AfterWriteHook("polls.opened", Trigger("timeline_index", Change.INSERT), 100, opened),
            AfterWriteHook("polls.voted", Trigger("timeline_index", Change.UPDATE, "a vote", votes), 100, voted),
            AfterWriteHook("polls.closed", Trigger("poll_closings", Change.UPDATE), 100, closed),
        ),
        after_read=(AfterReadHook("polls.count", Trigger("timeline_index"), 100, count),),
    ),
    indexes=(Index("polls", "messages with ext.poll", "room -> polls", Refresh.ON_CHANGE, "polls.list", polls),),
    operations=(
        Operation("polls.vote", vote, writes="timeline_index"),
        Operation("polls.close", close, writes="poll_closings"),
    ),
    events=("poll.opened", "poll.voted", "poll.closed"),
)
