"""EXT-13 Entity profile: what an entity says of itself, and finding who says what one looks for.

The body is a text that is merged: an entity may write it on several of its devices at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sublet.messaging.calls import people_calls as calls
from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.asking import AskingContext
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
from sublet.messaging.declaring.operating import OperationContext, OperationParts
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.extensions.pictures import find_picture, keep_picture
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.reading.avatars import AVATAR
from sublet.messaging.schema.changes import Happened
from sublet.messaging.schema.datatypes import QOS_LOW, Annotation, AnnotationPlace, Change, Datatype, Origin
from sublet.messaging.schema.fields import FieldsView
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import EntityId, RefId, is_content_hash, is_entity_id
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.roots import StorageType
from sublet.protocol.ezagent.yjs.encode import Nested
from sublet.protocol.ezagent.yjs.update import Scalar, Value
from sublet.protocol.patterns import Pattern
from sublet.protocol.times import rfc3339_of_ms

PROFILE: Final = "profile"
MAX_BODY_CHARS: Final = 32_768
MAX_FIELDS: Final = 32
MAX_FIELD_CHARS: Final = 1_024
MAX_SEARCHED_CHARS: Final = 8_192
"""Of a profile's text; what stands further down is not found."""
MAX_PROFILES: Final = 4_096
MAX_FOUND: Final = calls.MAX_FOUND
MAX_WORDS: Final = 16
MAX_QUERY_CHARS: Final = 400
REBUILD_SECONDS: Final = 600.0
_INDEX: Final = "discovery_search"
_ALL: Final = ""
_TYPE: Final = "entity_type"
_WRITTEN_AT: Final = "updated_at"
_FIELD = Pattern(r"[a-z][a-z0-9_]{0,63}\Z")
_ENTITY_TYPE = Pattern(r"[a-z][a-z0-9_-]{0,31}\Z")


def _document(entity: EntityId) -> str:
    return doc_id("profile", entity_id=entity)


def _shown(
    entity: EntityId, fields: Callable[[str], FieldsView], text: Callable[[str], str]
) -> calls.ProfileFound | None:
    """Return a profile as readers get it; None where there is none, or what is there is none.

    Args:
        entity: whose.
        fields: reads a map document.
        text: reads the text of a document.
    """
    name = _document(entity)
    frontmatter = fields(name).get("frontmatter")
    if not isinstance(frontmatter, dict):
        return None
    shown = {field: value for field, value in frontmatter.items() if _fits(field, value)}
    if len(shown) > MAX_FIELDS or _TYPE not in shown:
        return None
    try:
        body = text(name)
    except SubletError:  # whoever wrote it has made it unreadable
        return None
    return {"entity_id": entity, "frontmatter": shown, "body": body} if len(body) <= MAX_BODY_CHARS else None


def _read(parts: OperationParts, entity: EntityId) -> calls.ProfileFound | None:
    return _shown(entity, parts.reading.map_document, parts.texts.read)


def _fits(name: str, value: object) -> bool:
    if not _FIELD.match(name):
        return False
    if name == _TYPE:
        return isinstance(value, str) and _ENTITY_TYPE.match(value) is not None
    if name == AVATAR:
        return isinstance(value, str) and is_content_hash(value)
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= MAX_FIELD_CHARS)


def _get(context: OperationContext, entity: EntityId | None = None) -> calls.ProfileFound:
    """Return the profile of an entity, the caller's own where none is named.

    Raises:
        SubletError: ``INVALID_ARGUMENT``; ``NOT_FOUND``: it has none, or none has come here.
    """
    entity = _checked(entity or context.entity)
    view = _read(context.parts, entity)
    if view is None:
        raise SubletError(
            LocalCode.NOT_FOUND, f"no profile of {entity} is here", "It has none, or it shares no room with you."
        )
    return view


def _checked(entity: EntityId) -> EntityId:
    if not is_entity_id(entity):
        raise SubletError(LocalCode.INVALID_ARGUMENT, "that is no entity", "One looks like @name:node-…")
    return entity


def _update(
    context: OperationContext, frontmatter: dict[str, Scalar] | None = None, body: str | None = None
) -> calls.ProfileFound:
    """Change the caller's own profile, and return it.

    Args:
        context: who asks.
        frontmatter: fields to set; None for a value takes the field away. ``entity_type`` has to be there in the end.
        body: free text in Markdown; None leaves it.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: a field or the text has another shape, or a picture is named by its hash,
            which could be of a file that the caller has not.
    """
    if (frontmatter or {}).get(AVATAR) is not None:
        raise SubletError(LocalCode.INVALID_ARGUMENT, "a picture is set by its file, not by a hash", _BY_FILE)
    return _change(context, frontmatter, body)


def _change(context: OperationContext, frontmatter: dict[str, Scalar] | None, body: str | None) -> calls.ProfileFound:
    engine, entity = context.parts, context.entity
    name = _document(entity)
    known = engine.reading.map_document(name).get("frontmatter")
    before = known if isinstance(known, dict) else {}
    fields = dict(frontmatter or {})
    if _TYPE not in before:
        fields.setdefault(_TYPE, str(engine.keyring.local[entity].record.kind))
    for field, value in fields.items():
        if not (_fits(field, value) if value is not None else field != _TYPE):
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"the field {field[:64]!r} can't have this value", _SHAPES)
    if len({*before, *fields}) > MAX_FIELDS:
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"a profile has at most {MAX_FIELDS} fields", "Take some away.")
    if body is not None and len(body) > MAX_BODY_CHARS:
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"the text has over {MAX_BODY_CHARS} characters", "Shorten it.")
    writes: list[tuple[RefId | None, tuple[str, ...], Value | Nested]] = []
    if not isinstance(known, dict):
        writes.append((None, ("frontmatter",), Nested()))
    writes += [(None, ("frontmatter", field), value) for field, value in fields.items() if before.get(field) != value]
    if writes:
        engine.writing.set_fields(entity, name, writes)
    if body is not None and body != engine.texts.read(name):
        try:
            engine.texts.replace(entity, name, body, {_WRITTEN_AT: rfc3339_of_ms(engine.now_ms())})
        except (Refused, ValueError) as error:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"this can't be written: {error}", "Is it Unicode?") from None
    return _get(context)


async def _set_picture(context: AskingContext, data: bytes) -> calls.ProfileFound:
    """Let the caller's profile have a picture, and return the profile.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: it is no picture, or too large; ``UNAVAILABLE``: there is no space for it.
    """
    return await context.engine(lambda inside: _change(inside, {AVATAR: keep_picture(inside.parts, data)}, None))


async def _picture(
    context: AskingContext, entity: EntityId | None = None, known: str | None = None
) -> calls.PictureFound:
    """Return the picture of an entity, the caller's own where none is named; errors as ``find_picture``.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: that is no entity.
    """
    return await find_picture(context, _checked(entity or context.entity), known)


_BY_FILE: Final = "sublet profile --picture FILE; an empty value takes it away: sublet profile --set avatar_hash="
_SHAPES: Final = (
    "entity_type is a word such as human, agent or service; other fields have "
    f"names of small letters, and are a number, true, false, or at most {MAX_FIELD_CHARS} characters."
)


def _only_own(context: PreSend) -> None:
    """Let an entity write its own profile alone."""
    if context.intent.doc_id != _document(context.intent.entity):
        raise context.refuse("a profile is written by the entity itself")


def _whole(change: Happened) -> bool:
    return bool(change.path) and change.path[0] in ("frontmatter", _WRITTEN_AT)


def _index_update(context: AfterWrite) -> None:
    """Make a profile that has changed findable as it is now."""
    entity = context.change.signer
    entry = _entry(_shown(entity, context.read_document, context.text))
    if entry is not None:
        context.index([entry])
    else:
        context.unindex(_INDEX, _ALL, entity)


def _entry(view: FieldsView | None) -> IndexEntry | None:
    if view is None:
        return None
    entity = str(view["entity_id"])
    words = " ".join([entity, *map(str, view["frontmatter"].values()), view["body"]])
    return IndexEntry(_INDEX, _ALL, entity, {"words": words[:MAX_SEARCHED_CHARS].casefold()})


def _search(context: OperationContext, query: str, limit: int = MAX_FOUND) -> list[calls.ProfileFound]:
    """Return the profiles that are known here and hold all words of a query, those named by it first.

    Args:
        context: who asks.
        query: words; letters count alike whether small or not, and the beginning of a word is enough.
        limit: how many at most.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: a query without words, or with too many.
    """
    words = query.casefold().split()
    if not 0 < len(words) <= MAX_WORDS or len(query) > MAX_QUERY_CHARS or limit < 1:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"a query has 1 to {MAX_WORDS} words", "Such as: code review python"
        )
    found: list[calls.ProfileFound] = []
    for entry in context.parts.store.scan_index(_INDEX, _ALL, MAX_PROFILES):
        if all(word in str(entry.value["words"]) for word in words):
            view = _read(context.parts, entry.rank)
            if view is not None:
                found.append(view)
    return sorted(found, key=lambda view: (-_named(view, words), view["entity_id"]))[: min(limit, MAX_FOUND)]


def _named(view: FieldsView, words: list[str]) -> int:
    name = f"{view['frontmatter'].get('display_name', '')} {view['entity_id']}".casefold()
    return sum(word in name for word in words)


def _rebuild(context: OperationContext) -> None:
    """Forget who shares no room with us any more, and find whoever does."""
    engine = context.parts
    members = {entity for room in engine.here.ids for entity in engine.rooms.state(room).members()}
    wanted = set(sorted(members - set(engine.keyring.local))[: MAX_PROFILES - len(engine.keyring.local)])
    wanted |= set(engine.keyring.local)
    entries = [_entry(_read(engine, entity)) for entity in sorted(wanted)]
    fresh = [entry for entry in entries if entry is not None]
    with engine.store.transaction():
        for old in engine.store.scan_index(_INDEX, _ALL, MAX_PROFILES):
            engine.store.drop_index(_INDEX, _ALL, old.rank)
        engine.store.put_index(fresh)


PROFILES: Final = Declaration(
    id=PROFILE,
    version="0.1.0",
    dependencies=("identity",),
    origin=Origin.STANDARD,
    datatypes=(
        Datatype(
            id="entity_profile",
            storage_type=StorageType.CRDT_MAP,
            key_pattern="ezagent/@{entity_id}/ext/profile/{state|updates}",
            persistent=True,
            writer_rule="signer == entity_id",
            qos=QOS_LOW,
        ),
    ),
    hooks=Hooks(
        pre_send=(PreSendHook("profile.only_own", Trigger("entity_profile"), 50, _only_own),),
        after_write=(
            AfterWriteHook(
                "profile.index_update",
                Trigger("entity_profile", Change.ANY, "frontmatter or body", _whole),
                50,
                _index_update,
            ),
        ),
    ),
    annotations=(
        Annotation(
            AnnotationPlace.ON_PROFILE,
            "frontmatter",
            "Y.Map { entity_type, display_name, avatar_hash }",
            writer_rule="signer == entity_id",
        ),
        Annotation(AnnotationPlace.ON_PROFILE, "body", "Y.Text, Markdown", writer_rule="signer == entity_id"),
    ),
    indexes=(
        Index(
            id="profile_lookup",
            input="ezagent/@{entity_id}/ext/profile",
            transform="entity_id -> profile content",
            refresh=Refresh.ON_CHANGE,
            operation_id=calls.get_profile.id,
            read=calls.get_profile.by(_get),
        ),
        Index(
            id=_INDEX,
            input="all profiles that are known here",
            transform="query -> matching profiles",
            refresh=Refresh.PERIODIC,
            operation_id=calls.search_profiles.id,
            read=calls.search_profiles.by(_search),
            rebuild=_rebuild,
            every_seconds=REBUILD_SECONDS,
        ),
    ),
    operations=(
        Operation(calls.update_profile.id, calls.update_profile.by(_update), writes="entity_profile"),
        Operation(
            calls.set_picture.id, calls.set_picture.by_waiting(_set_picture), writes="entity_profile", waits=True
        ),
        Operation(calls.get_picture.id, calls.get_picture.by_waiting(_picture), waits=True),
    ),
)
