"""EXT-10 Media: files that messages come with, kept once under their hash, and fetched by who wants to see them.

A room tells which files belong to it (a document for each); whoever is a member of such a room gets the file, piece by
piece, from a peer that has it, and believes it when the whole has the right hash. A file of a sealed room is kept,
named and told sealed (``sealing.files``); its key, name and length stand in its document, which only members read.

Weak: what a room named before it was sealed stays as it is. A file that is sent once more under another epoch has
another hash, and is kept twice.
"""

from __future__ import annotations

import hashlib
import os
from functools import partial
from typing import Final

import anyio.to_thread

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
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.extensions.pictures import named_pictures
from sublet.messaging.ports.blobs import keep
from sublet.messaging.ports.purge_store import Kind
from sublet.messaging.schema.changes import Happened, Intent
from sublet.messaging.schema.datatypes import QOS_DATA, Annotation, AnnotationPlace, Change, Datatype, Origin
from sublet.messaging.schema.fields import Fields
from sublet.protocol.encoding import b64, unb64
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.blob import MAX_BLOB_BYTES, PIECE_BYTES, PieceRequest, encode_wanted, parse_piece
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import RoomId, is_content_hash
from sublet.protocol.ezagent.keys import doc_id, parse_doc_id
from sublet.protocol.ezagent.roots import StorageType
from sublet.protocol.ezagent.sealing.files import file_key, open_file, seal_file, sealed_size
from sublet.protocol.ezagent.sealing.wire import KEY_BYTES
from sublet.protocol.ezagent.yjs.update import Value
from sublet.protocol.text import clean_line

MEDIA: Final = "media"
MAX_FILENAME_CHARS: Final = 255
MAX_TYPE_CHARS: Final = 127
MAX_LISTED: Final = 500
MAX_SHOWN: Final = 4_096
"""Profiles whose pictures stay."""
GRACE_SECONDS: Final = 86_400.0
"""How long a file stays that no room names."""
SWEEP_SECONDS: Final = 3_600.0
_FIELD: Final = f"ext.{MEDIA}"
_PREFIX: Final = "sha256:"
_HASH, _NAME, _TYPE, _SIZE = "blob_hash", "filename", "mime_type", "size_bytes"
_KEY: Final = "file_key"
"""Of a file that is sealed, in its document."""
_DATA: Final = "data"
"""What an upload brings, which no document holds."""


def _document(room_id: RoomId, blob_hash: str) -> str:
    """Return the id of the document by which a room names a file.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: that is no hash.
    """
    given = blob_hash if blob_hash.startswith(_PREFIX) else _PREFIX + blob_hash
    if not is_content_hash(given):
        raise SubletError(LocalCode.INVALID_ARGUMENT, "that is no file's hash", "It is sha256: and 64 digits.")
    return doc_id("blob_ref", room_id=room_id, hash=given.removeprefix(_PREFIX))


def _facts(name: str, found: Fields) -> Fields | None:
    """Return what a room says of a file in a document; None where it names none, or says it in another shape."""
    filename, kind, size = found.get(_NAME), found.get(_TYPE), found.get(_SIZE)
    if not isinstance(filename, str) or not isinstance(kind, str) or not isinstance(size, int):
        return None
    if not 0 < size <= MAX_BLOB_BYTES:
        return None
    digest = parse_doc_id(name).hash
    return {
        _HASH: f"{_PREFIX}{digest}",
        _NAME: _clean_name(filename),
        _TYPE: clean_line(kind, MAX_TYPE_CHARS),
        _SIZE: size,
    }


def _clean_name(given: str) -> str:
    return clean_line(given, MAX_FILENAME_CHARS).replace("/", "_") or "file"


def _key_of(found: Fields) -> bytes | None:
    """Return the key of a file that is sealed, by what its document says; None of one that is not."""
    text = found.get(_KEY)
    if not isinstance(text, str):
        return None
    return unb64(text, KEY_BYTES) or b""  # which opens nothing


def _told(facts: Fields) -> calls.FileKept:
    name, kind, size = facts[_NAME], facts[_TYPE], facts[_SIZE]
    return {"blob_hash": facts[_HASH], "filename": name, "media_type": kind, "size": size}


def _keep_file(context: PreSend) -> None:
    """Keep a file under its hash, which its room then names."""
    data = context.fields[_DATA]
    context.fields[_HASH] = _PREFIX + context.keep_blob(data)
    context.fields.setdefault(_SIZE, len(data))


async def _upload(
    context: AskingContext, room_id: RoomId, data: bytes, media_type: str, filename: str
) -> calls.FileKept:
    """Keep a file, and let a room name it; a message then comes with it by ``ext={"media": {"blob_hash": …}}``.

    Args:
        context: who asks.
        room_id: the room.
        data: from 1 to ``MAX_BLOB_BYTES`` bytes.
        media_type: such as ``image/png``; nobody believes it.
        filename: what to call it; nobody takes it for a path.

    Raises:
        SubletError: ``NOT_FOUND``; ``CONFLICT``: the room takes no files; ``INVALID_ARGUMENT``; ``UNAVAILABLE``: there
            is no space for it.
    """
    if not 0 < len(data) <= MAX_BLOB_BYTES or not filename or not media_type:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"a file has from 1 to {MAX_BLOB_BYTES >> 20} MiB, a name and a type",
            "Lend it.",
        )
    if len(filename) > MAX_FILENAME_CHARS or len(media_type) > MAX_TYPE_CHARS:
        raise SubletError(LocalCode.INVALID_ARGUMENT, "the name or the type is too long", "Shorten it.")
    keep_it = partial(_keep, room_id=room_id, media_type=media_type, filename=filename)
    secret = await context.engine(partial(_secret, room_id=room_id))
    if secret is None:
        return await context.engine(partial(keep_it, data=data))
    key, sealed = await anyio.to_thread.run_sync(_sealed, secret, data)
    return await context.engine(partial(keep_it, data=sealed, sealing=(key, len(data))))


def _secret(context: OperationContext, room_id: RoomId) -> bytes | None:
    """Return what a file's key is made of in a sealed room; None in another one.

    While no epoch's key is here that is drawn at random: the same file then has another address each time.
    """
    _offered(context, room_id)
    seals = context.parts.seals
    if not seals.is_sealed(room_id):
        return None
    held = seals.writing_key(room_id)
    return held[1] if held is not None else os.urandom(KEY_BYTES)


def _sealed(secret: bytes, data: bytes) -> tuple[bytes, bytes]:
    key = file_key(secret, data)
    return key, seal_file(key, data)


def _keep(
    context: OperationContext,
    room_id: RoomId,
    data: bytes,
    media_type: str,
    filename: str,
    sealing: tuple[bytes, int] | None = None,
) -> calls.FileKept:
    """Keep a file as it is, or sealed with a key, when it was of so many bytes; and let a room name it."""
    _offered(context, room_id)
    given: Fields = {_DATA: data, _NAME: filename, _TYPE: media_type}
    if sealing is not None:
        given |= {_KEY: b64(sealing[0]), _SIZE: sealing[1]}
    elif context.parts.seals.is_sealed(room_id):
        raise SubletError(LocalCode.CONFLICT, "the room was sealed a moment ago", "Send the file again.")
    intent = Intent("global_blob", Change.INSERT, "", room_id, context.entity, given)
    context.parts.hooks.pre_send(intent, {})
    name = _document(room_id, str(intent.fields[_HASH]))
    if context.parts.store.purges.is_gone(room_id, Kind.FILE, parse_doc_id(name).hash or ""):
        raise SubletError(LocalCode.CONFLICT, "this very file was purged from the room", "Send another one.")
    before = context.parts.reading.map_document(name)
    if _facts(name, before) is None or before.get(_KEY) != given.get(_KEY):
        told = (_HASH, _NAME, _TYPE, _SIZE, _KEY)
        fields: dict[str, Value] = {key: intent.fields[key] for key in told if key in intent.fields}
        context.parts.writing.set_fields(context.entity, name, [(None, (key,), value) for key, value in fields.items()])
    return _told(_facts(name, context.parts.reading.map_document(name)) or {})


def _offered(context: OperationContext, room_id: RoomId) -> None:
    context.require_enabled(room_id, MEDIA)


async def _get(context: AskingContext, room_id: RoomId, blob_hash: str) -> bytes:
    """Return a file that a room names, fetched from a peer where it is not here.

    Raises:
        SubletError: ``NOT_FOUND``: the room names no such file; ``UNAVAILABLE``: nobody who has it answers.
    """
    size, key, data = await context.engine(partial(_here, room_id=room_id, blob_hash=blob_hash))
    if data is None:
        data = await _fetched(context, room_id, blob_hash, size if key is None else sealed_size(size))
    if key is None:
        return data
    try:
        opened = await anyio.to_thread.run_sync(open_file, key, data)
    except Refused:
        opened = b""
    if len(opened) != size:
        raise SubletError(
            LocalCode.UNAVAILABLE, "this file does not open", "A member has named it wrongly; have it sent again."
        )
    return opened


async def _fetched(context: AskingContext, room_id: RoomId, blob_hash: str, size: int) -> bytes:
    """Return a file as it is kept, of so many bytes, from a peer that has it.

    Raises:
        SubletError: ``UNAVAILABLE``.
    """
    digest = parse_doc_id(_document(room_id, blob_hash)).hash or ""
    key = doc_id("blob", hash=digest)
    whole = bytearray()
    while len(whole) < size:
        answers = await context.fetch(key, encode_wanted(PieceRequest(room_id, len(whole))))
        piece = next((found for raw in answers if (found := _piece(raw, size, len(whole))) is not None), b"")
        if not piece:
            raise SubletError(LocalCode.UNAVAILABLE, "nobody who has this file answers", "Try again later.")
        whole += piece
    data = bytes(whole[:size])
    if hashlib.sha256(data).hexdigest() != digest:
        raise SubletError(LocalCode.UNAVAILABLE, "what came is not this file", "A peer is broken or lies; try again.")
    await context.engine(lambda found: keep(found.parts.blobs, data))
    return data


def _here(context: OperationContext, room_id: RoomId, blob_hash: str) -> tuple[int, bytes | None, bytes | None]:
    """Return how large a file is, its key where it is sealed, and the file as it is kept, where it is here."""
    context.state(room_id)
    name = _document(room_id, blob_hash)
    found, digest = context.parts.reading.map_document(name), parse_doc_id(name).hash or ""
    facts = _facts(name, found)
    if facts is None:
        raise SubletError(LocalCode.NOT_FOUND, "this room names no such file", "Read the room for its files.")
    blobs = context.parts.blobs
    there = blobs.size(digest)
    return facts[_SIZE], _key_of(found), blobs.read(digest, 0, there) if there is not None else None


def _piece(raw: bytes, size: int, offset: int) -> bytes | None:
    """Return the piece of a file at an offset; None for a shorter one, or a file would take questions without end."""
    try:
        piece = parse_piece(raw)
    except Refused:
        return None
    return piece.data if piece.size == size and len(piece.data) == min(PIECE_BYTES, size - offset) else None


def _list(context: OperationContext, room_id: RoomId) -> list[Fields]:
    """Return the files that a room names, at most ``MAX_LISTED``, with whether each is here."""
    context.state(room_id)
    engine = context.parts
    found: list[Fields] = []
    for row in engine.store.documents(room_id, "blob_ref")[:MAX_LISTED]:
        facts = _facts(row.doc_id, engine.reading.map_document(row.doc_id))
        if facts is not None:
            here = engine.blobs.size(facts[_HASH].removeprefix(_PREFIX)) is not None
            found.append({**_told(facts), "here": here})
    return sorted(found, key=lambda one: (one[_NAME], one[_HASH]))


def _comes_with_file(intent: Intent) -> bool:
    return _FIELD in intent.fields


def _inject(context: PreSend) -> None:
    """Bring what a message comes with into the one form, from what its room says of the file.

    A message may call it otherwise, since a file has one name in a room, which is that of whoever put it there first.
    """
    given, room_id = context.fields[_FIELD], context.intent.room_id
    blob_hash = given.get(_HASH) if isinstance(given, dict) else given
    if not isinstance(blob_hash, str) or room_id is None:
        raise context.refuse("a message comes with a file by its hash", "media.upload returns it.")
    name = _document(room_id, blob_hash)
    facts = _facts(name, context.read_document(name))
    if facts is None:
        raise context.refuse("this room names no such file", "Upload it to this room first.")
    called = given.get(_NAME) if isinstance(given, dict) else None
    context.annotate(MEDIA, facts | ({_NAME: _clean_name(called)} if isinstance(called, str) else {}))


def _names_file(change: Happened) -> bool:
    return isinstance(change.fields.get(_FIELD), dict)


def _want(context: AfterWrite) -> None:
    """Have asked for what a room says of a file that a message comes with."""
    change, given = context.change, context.change.fields[_FIELD]
    blob_hash = given.get(_HASH)
    if change.room_id is not None and isinstance(blob_hash, str) and is_content_hash(blob_hash):
        context.want(_document(change.room_id, blob_hash))


def _sweep(context: OperationContext) -> None:
    """Forget files that no room here names any more, and pictures that no profile names."""
    engine = context.parts
    named = {
        parse_doc_id(row.doc_id).hash
        for room_id in engine.here.ids
        for row in engine.store.documents(room_id, "blob_ref")
    }
    over = [digest for digest, _, age in list(engine.blobs.all()) if digest not in named and age > GRACE_SECONDS]
    shown = named_pictures(engine, MAX_SHOWN) if over else set()
    for digest in over:
        if digest not in shown:
            engine.blobs.drop(digest)


MEDIA_FILES: Final = Declaration(
    id=MEDIA,
    version="0.2.0",
    dependencies=("message",),
    origin=Origin.STANDARD,
    datatypes=(
        Datatype(
            id="global_blob",
            storage_type=StorageType.BLOB,
            key_pattern="ezagent/blob/{blob_hash}",
            persistent=True,
            writer_rule="any authenticated entity",
        ),
        Datatype(
            id="blob_ref",
            storage_type=StorageType.CRDT_MAP,
            key_pattern="ezagent/{room_id}/ext/media/blob-ref/{blob_hash}",
            persistent=True,
            writer_rule="signer ∈ room.members",
            qos=QOS_DATA,
        ),
    ),
    hooks=Hooks(
        pre_send=(
            PreSendHook("media.upload", Trigger("global_blob", Change.INSERT), 20, _keep_file),
            PreSendHook(
                "media.inject", Trigger("timeline_index", Change.INSERT, "has media", _comes_with_file), 30, _inject
            ),
        ),
        after_write=(
            AfterWriteHook("media.want", Trigger("timeline_index", Change.INSERT, "has media", _names_file), 50, _want),
        ),
    ),
    annotations=(Annotation(AnnotationPlace.ON_REF, MEDIA, "{ blob_hash, filename, mime_type, size_bytes }"),),
    indexes=(
        Index(
            id="media_gallery",
            input="ezagent/{room_id}/ext/media/blob-ref/*",
            transform="room_id -> list of media refs",
            refresh=Refresh.ON_DEMAND,
            operation_id="media.list",
            read=_list,
        ),
        Index(
            id="media_sweep",
            input="blobs, and the blob refs of all rooms",
            transform="blobs that no room names -> gone",
            refresh=Refresh.PERIODIC,
            rebuild=_sweep,
            every_seconds=SWEEP_SECONDS,
        ),
    ),
    operations=(
        Operation(calls.upload_file.id, calls.upload_file.by_waiting(_upload), writes="blob_ref", waits=True),
        Operation(calls.get_file.id, calls.get_file.by_waiting(_get), waits=True),
    ),
)
