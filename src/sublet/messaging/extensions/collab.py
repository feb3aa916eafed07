"""EXT-02 Collaborative content: the author of a message lets others write into its text, some or all members.

Who may edit decides which edits count when reading, wherever they come from. Whoever is no editor any more keeps what
they had written by then: the list tells up to which clock that was known.
"""

from __future__ import annotations

from typing import Final

from sublet.messaging.calls import message_calls as calls
from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.declaration import (
    AfterWriteHook,
    Declaration,
    Hooks,
    Index,
    Operation,
    PreSendHook,
    Refresh,
    Trigger,
)
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.extensions.mutable import (
    EDITED_AT,
    REF_OF_CONTENT,
    authored,
    content_document,
    found_content,
    name_content,
)
from sublet.messaging.extensions.watch import tell_of_edit
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.schema.changes import Happened, Intent
from sublet.messaging.schema.datatypes import (
    Annotation,
    AnnotationPlace,
    Change,
    Datatype,
    Origin,
    ReadsMaps,
    Widening,
    Write,
)
from sublet.messaging.schema.fields import Fields
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.content import IMMUTABLE, MAX_BODY_BYTES
from sublet.protocol.ezagent.ids import ContentId, EntityId, RefId, RoomId, is_content_hash, is_entity_id
from sublet.protocol.ezagent.keys import doc_id, parse_doc_id
from sublet.protocol.ezagent.roots import StorageType
from sublet.protocol.ezagent.yjs.update import Value
from sublet.protocol.times import rfc3339_of_ms

COLLAB: Final = "collab"
MODES: Final = ("owner_only", "explicit", "room_members")
"""Each lets more entities write than the one before; there is no way back."""
MAX_EDITORS: Final = 256
MAX_EDITS: Final = 64
"""Places of a text that are edited at once."""
_SEEN: Final = "seen"
_SHARED_KEYS: Final = ("body", EDITED_AT)


def acl_document(room_id: RoomId, content_id: ContentId) -> str:
    """Return the id of the document that tells who may edit a content."""
    return doc_id("acl", room_id=room_id, content_id=content_id)


def _acl(maps: ReadsMaps, room_id: RoomId, content_id: ContentId) -> Fields:
    """Return who may edit, with every field in its shape; a content without a list is its owner's alone."""
    found = maps.map_document(acl_document(room_id, content_id))
    editors, seen = found.get("editors"), found.get(_SEEN)
    named = [one for one in editors if isinstance(one, str)] if isinstance(editors, list) else []
    return {
        "owner": found.get("owner"),
        "mode": found["mode"] if found.get("mode") in MODES else MODES[0],
        "editors": named[:MAX_EDITORS],
        "updated_at": found.get("updated_at"),
        _SEEN: seen if isinstance(seen, dict) else {},
    }


def _editor_writes(maps: ReadsMaps, write: Write) -> bool:
    """Tell whether somebody who is not the author wrote into the text by the author's leave."""
    place = write.place
    if place.room_id is None or place.content_id is None or write.path[:1] not in [(key,) for key in _SHARED_KEYS]:
        return False
    acl = _acl(maps, place.room_id, place.content_id)
    if acl["mode"] == MODES[0] or not write.of_member:
        return False
    return acl["mode"] == MODES[2] or write.signer in acl["editors"] or _was_seen(acl[_SEEN], write)


def _was_seen(seen: Fields, write: Write) -> bool:
    clocks = seen.get(write.signer)
    clock = clocks.get(str(write.item[0])) if isinstance(clocks, dict) else None
    return isinstance(clock, int | float) and write.item[1] < clock


def _is_collab(intent: Intent) -> bool:
    return intent.fields.get("path") == ("body",)


def _check_acl(context: PreSend) -> None:
    """Refuse an edit of who may not, before anything is written."""
    place = parse_doc_id(context.intent.doc_id)
    if place.room_id is None or place.content_id is None:
        return
    if not authored(place.content_id, place.room_id, context.intent.entity) and not context.counts():
        raise context.refuse("you may not write into this text", "Ask its author to let you.", LocalCode.POLICY_DENIED)


def _by_editor(change: Happened) -> bool:
    return change.path == (EDITED_AT,)


def _emit_edited(context: AfterWrite) -> None:
    """Tell that somebody else than the author has written into a message; of the author's edits the ref tells."""
    change, place = context.change, parse_doc_id(context.change.doc_id)
    if place.room_id is None or place.content_id is None or authored(place.content_id, place.room_id, change.signer):
        return
    for entry in context.scan_index(REF_OF_CONTENT, place.content_id, 1):
        ref = context.read_ref(entry.rank)
        if ref is not None and ref["content_id"] == place.content_id and context.counts(_SHARED_KEYS[:1]):
            context.emit(
                "message.edited",
                {
                    "ref_id": ref["ref_id"],
                    "author": ref["author"],
                    "by": change.signer,
                    "content_id": place.content_id,
                    "local": change.local,
                },
            )
            tell_of_edit(context, ref)


def _becomes_collab(change: Happened) -> bool:
    return change.path == ("content_type",) and change.value == COLLAB


def _want_acl(context: AfterWrite) -> None:
    """Have the list of who may edit asked for, where a message names a text of several and it is not here."""
    change = context.change
    ref = context.read_ref(change.entry_id) if change.entry_id is not None else None
    if ref is not None and authored(ref["content_id"], ref["room_id"], ref["author"]):
        context.want(acl_document(ref["room_id"], ref["content_id"]))


def _shared(context: OperationContext, room_id: RoomId, ref_id: RefId) -> Fields:
    """Return a ref whose content changes.

    Raises:
        SubletError: ``NOT_FOUND``; ``CONFLICT``: it was never edited nor shared.
    """
    ref = context.ref(room_id, ref_id)
    context.refuse_purged(room_id, ref_id)
    if not authored(ref["content_id"], room_id, ref["author"]):
        raise SubletError(
            LocalCode.CONFLICT, "this message can't be written by several", "Its author may share it: sublet text share"
        )
    return ref


def _get_acl(context: OperationContext, room_id: RoomId, ref_id: RefId) -> calls.AccessFound:
    """Return who may edit a message: ``owner``, ``mode``, ``editors``, ``updated_at``."""
    ref = context.ref(room_id, ref_id)
    if is_content_hash(ref["content_id"]):
        return {"owner": ref["author"], "mode": MODES[0], "editors": [], "updated_at": None}
    return _told(ref["author"], _acl(context.parts.reading, room_id, ref["content_id"]))


def _told(owner: EntityId, acl: Fields) -> calls.AccessFound:
    return {"owner": owner, "mode": acl["mode"], "editors": acl["editors"], "updated_at": acl["updated_at"]}


def _update_acl(
    context: OperationContext,
    room_id: RoomId,
    ref_id: RefId,
    mode: str | None = None,
    editors: list[EntityId] | None = None,
) -> calls.AccessFound:
    """Let others write into a message of the caller.

    Args:
        context: who asks, who has to be the author.
        room_id: the room.
        ref_id: the message.
        mode: one of ``MODES``, never one that lets fewer write than now; None leaves it.
        editors: who may write where the mode is ``explicit``; None leaves them.

    Raises:
        SubletError: ``POLICY_DENIED``: it is another's; ``CONFLICT``: the mode would let fewer write, or the room does
            not offer this; ``INVALID_ARGUMENT``.
    """
    engine, ref = context.parts, context.ref(room_id, ref_id)
    if ref["author"] != context.entity:
        raise SubletError(LocalCode.POLICY_DENIED, "only its author decides who writes into a message", "Ask them.")
    context.refuse_purged(room_id, ref_id)
    given = list(dict.fromkeys(editors)) if editors is not None else None
    if mode not in (None, *MODES) or (given is not None and not _are_entities(given)):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"a mode is one of {', '.join(MODES)}; editors are at most {MAX_EDITORS} entities",
            "sublet room show names the members.",
        )
    if ref["content_type"] == IMMUTABLE:
        shown = engine.shows.shown(context.entity, room_id, [ref])[0]
        content_id = found_content(context, ref, shown.get("body") or "")
    else:
        content_id = ref["content_id"]
    name = acl_document(room_id, content_id)
    acl = _acl(engine.reading, room_id, content_id)
    if mode is not None and MODES.index(mode) < MODES.index(acl["mode"]):
        raise SubletError(
            LocalCode.CONFLICT, f"{acl['mode']} is not taken back to {mode}", "Take editors off the list instead."
        )
    fields: dict[str, Value] = {"owner": context.entity, "updated_at": rfc3339_of_ms(engine.now_ms())}
    fields["mode"] = mode or acl["mode"]
    if given is not None:
        gone = [one for one in acl["editors"] if one not in given]
        fields["editors"] = list[Value](given)
        fields[_SEEN] = acl[_SEEN] | {
            one: _clocks(engine.documents, content_document(room_id, content_id), one) for one in gone
        }
    there = engine.reading.map_document(name)
    changed = {key: value for key, value in fields.items() if there.get(key) != value}
    engine.writing.set_fields(context.entity, name, [(None, (key,), value) for key, value in changed.items()])
    if ref["content_type"] != COLLAB:
        name_content(context, ref, content_id, COLLAB, edited=False)
    return _told(context.entity, _acl(engine.reading, room_id, content_id))


def _are_entities(given: list[EntityId]) -> bool:
    return len(given) <= MAX_EDITORS and all(is_entity_id(one) for one in given)


def _clocks(documents: OpenDocuments, name: str, entity: EntityId) -> dict[str, Value]:
    """Return up to which clock an entity's clients have written into a document."""
    clients = documents.open(name).clients
    return {str(client): clock for client, (clock, signer) in clients.items() if signer == entity}


def _connect(context: OperationContext, room_id: RoomId, ref_id: RefId) -> calls.TextFound:
    """Return a text as it is, and whether the caller may write into it; ``message.edited`` tells of what comes."""
    ref = _shared(context, room_id, ref_id)
    shown = context.parts.shows.shown(context.entity, room_id, [ref])[0]
    if shown.get("body") is None:
        raise SubletError(LocalCode.NOT_FOUND, "this message has no text here", "It was deleted, or has not come yet.")
    name = content_document(room_id, ref["content_id"])
    acl = _get_acl(context, room_id, ref_id)
    may = context.parts.texts.may(context.entity, name)
    return {"content_id": ref["content_id"], "text": shown["body"], "may_edit": may, **acl}


def _edit(
    context: OperationContext,
    room_id: RoomId,
    ref_id: RefId,
    index: int,
    delete: int = 0,
    insert: str = "",
    expected: str | None = None,
) -> calls.TextChanged:
    """Replace characters of a text, as others do at the same time.

    Args:
        context: who asks.
        room_id: the room.
        ref_id: the message.
        index: the first character to replace.
        delete: how many.
        insert: what comes in their place.
        expected: what they have to be; where they are others by now, nothing is done.

    Raises:
        SubletError: ``CONFLICT``: they are others; ``POLICY_DENIED``: the caller may not; ``INVALID_ARGUMENT``.
    """
    here = _connect(context, room_id, ref_id)
    if expected is not None and here["text"][index : index + delete] != expected:
        raise SubletError(LocalCode.CONFLICT, "the text is another one there by now", "Read it again.")
    return _replace(context, room_id, ref_id, here, [(index, delete, insert)])


def _patch(
    context: OperationContext, room_id: RoomId, ref_id: RefId, edits: list[tuple[int, int, str]], base: str
) -> calls.TextChanged:
    """Replace characters of a text in several places at once, or nowhere.

    Args:
        context: who asks.
        room_id: the room.
        ref_id: the message.
        edits: of each the first character in the text as it was read, how many go, and what comes in their place; in
            order, and none within another; at most ``MAX_EDITS``.
        base: the text that was read; where it is another one by now, nothing is done.

    Raises:
        SubletError: as ``_edit``.
    """
    here = _connect(context, room_id, ref_id)
    if here["text"] != base:
        raise SubletError(LocalCode.CONFLICT, "the text is another one by now", "Read it again.")
    return _replace(context, room_id, ref_id, here, edits)


def _replace(
    context: OperationContext, room_id: RoomId, ref_id: RefId, here: calls.TextFound, edits: list[tuple[int, int, str]]
) -> calls.TextChanged:
    text, after, place = here["text"], "", 0
    for index, delete, insert in edits:
        if not place <= index <= index + delete <= len(text) or delete < 0 or not (delete or insert):
            raise SubletError(LocalCode.INVALID_ARGUMENT, "no such characters in this text", "Read it again.")
        after, place = after + text[place:index] + insert, index + delete
    if not 0 < len(edits) <= MAX_EDITS or len((after + text[place:]).encode("utf-8", "surrogatepass")) > MAX_BODY_BYTES:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"a text has at most {MAX_BODY_BYTES} bytes, and is edited in at most {MAX_EDITS} places at once",
            "Begin another text, or edit fewer places.",
        )
    engine, name = context.parts, content_document(room_id, here["content_id"])
    marks: dict[str, Value] = {EDITED_AT: rfc3339_of_ms(engine.now_ms())}
    try:
        for index, delete, insert in reversed(edits):  # the last one first, so that places stay what they are
            engine.texts.edit(context.entity, name, index, index + delete, insert, marks)
    except ValueError as error:
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"this can't be written: {error}", "Is it Unicode?") from None
    return {"content_id": here["content_id"], "text": engine.texts.read(name)}


COLLABORATIVE: Final = Declaration(
    id=COLLAB,
    version="0.1.0",
    dependencies=("mutable", "room"),
    origin=Origin.STANDARD,
    datatypes=(
        Datatype(
            id="collab_acl",
            storage_type=StorageType.CRDT_MAP,
            key_pattern="ezagent/{room_id}/content/{content_id}/acl/{state|updates}",
            persistent=True,
            writer_rule="signer ∈ room.members AND signer == acl.owner",
        ),
    ),
    hooks=Hooks(
        pre_send=(
            PreSendHook(
                "collab.check_acl",
                Trigger("mutable_content", Change.UPDATE, "content_type == collab", _is_collab),
                25,
                _check_acl,
            ),
        ),
        after_write=(
            AfterWriteHook(
                "collab.want_acl",
                Trigger("timeline_index", Change.UPDATE, "content_type == collab", _becomes_collab),
                40,
                _want_acl,
            ),
            AfterWriteHook(
                "collab.emit_edited",
                Trigger("mutable_content", Change.UPDATE, "an edit of another than the author", _by_editor),
                40,
                _emit_edited,
            ),
        ),
    ),
    annotations=(Annotation(AnnotationPlace.STANDALONE_DOC, COLLAB, "content_type collab; from mutable"),),
    indexes=(
        Index(
            id="collaborator_list",
            input="collab_acl",
            transform="content_id -> {owner, mode, editors}",
            refresh=Refresh.ON_CHANGE,
            operation_id=calls.get_access.id,
            read=calls.get_access.by(_get_acl),
        ),
    ),
    operations=(
        Operation(calls.update_access.id, calls.update_access.by(_update_acl), writes="collab_acl"),
        Operation(calls.get_text.id, calls.get_text.by(_connect)),
        Operation("collab.edit", _edit, writes="mutable_content"),
        Operation(calls.patch_text.id, calls.patch_text.by(_patch), writes="mutable_content"),
    ),
    widenings=(Widening("mutable_content", _editor_writes),),
    events=("message.edited",),
)
