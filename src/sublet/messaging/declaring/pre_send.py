"""What a hook may do before something is written: change it, annotate it, refuse it (ezagent 2.2).

Rules: what a hook of this phase may not do, its context does not offer: there is no way to the network, nor to data
that is not written yet. It runs on the engine's thread, so it waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nacl.signing import SigningKey

from sublet.messaging.declaring.reads_rooms import ReadsEpochs, ReadsMaps
from sublet.messaging.identities.epochs import Epochs
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.ports.blobs import BlobStore, keep
from sublet.messaging.ports.store import Store
from sublet.messaging.reading.reading import Reading
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.schema.changes import Intent
from sublet.messaging.schema.datatypes import AnnotationPlace
from sublet.messaging.schema.fields import Fields
from sublet.messaging.schema.schema import Schema
from sublet.messaging.texts.texts import Texts
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.content import parse_content, sign_ref
from sublet.protocol.ezagent.ids import RefId, RoomId, own_ref_id
from sublet.protocol.ezagent.room.state import RoomState


@dataclass(frozen=True, slots=True)
class SendParts:
    """The parts that such a hook uses, by way of its context."""

    store: Store
    schema: Schema
    rooms: RoomStates
    here: RoomsHere
    reading: Reading
    texts: Texts
    keyring: Keyring
    epochs: Epochs
    blobs: BlobStore
    ref_numbers: Iterator[int]
    now_ms: Callable[[], int]


class PreSend(ReadsMaps, ReadsEpochs):
    """Before something is written and signed: change it, annotate it, refuse it.

    There is no way from here to the network, nor to data that is not written yet.
    """

    _parts: SendParts

    def __init__(self, parts: SendParts, intent: Intent, contents: dict[str, bytes]) -> None:
        self._parts = parts
        self._contents = contents
        self.intent = intent

    @property
    def fields(self) -> Fields:
        """Return the fields that will be written, to be changed in place."""
        return self.intent.fields

    @property
    def room(self) -> RoomState | None:
        """Return the state of the room that is written to."""
        return self._parts.rooms.state(self.intent.room_id) if self.intent.room_id is not None else None

    @property
    def now_ms(self) -> int:
        """Return the time, Unix milliseconds."""
        return self._parts.now_ms()

    def annotate(self, name: str, value: object) -> None:
        """Put a value into the namespace ``ext.{name}``."""
        self.intent.fields[f"ext.{name}"] = value

    def refuse(self, message: str, hint: str = "", code: LocalCode = LocalCode.INVALID_ARGUMENT) -> SubletError:
        """Return the error to raise, which keeps all of it from being written."""
        return SubletError(code, message, hint)

    def keep_blob(self, data: bytes) -> str:
        """Keep a file under its hash, once for however many rooms name it; return the hash, in hex.

        Raises:
            SubletError: ``UNAVAILABLE``: there is no space for it.
        """
        return keep(self._parts.blobs, data)

    def attach_content(self, content_id: str, raw: bytes) -> None:
        """Add an immutable content that is written with it."""
        self._contents[content_id] = raw

    def has_content(self, content_id: str) -> bool:
        """Tell whether an immutable content is here, or comes with it."""
        room = self.intent.room_id
        return content_id in self._contents or (
            room is not None and self._parts.store.content(room, content_id) is not None
        )

    def content(self, content_id: str) -> dict[str, JsonValue] | None:
        """Return an immutable content that is written with it, or is here; None where there is none."""
        raw = self._contents.get(content_id)
        if raw is not None:
            return parse_content(raw)
        room = self.intent.room_id
        return self._parts.reading.content(room, content_id) if room is not None else None

    def read_ref(self, room_id: RoomId, ref_id: RefId) -> Fields | None:
        """Return a ref of a room that the author is a member of; None where there is none."""
        if not self._parts.here.is_member(self.intent.entity, room_id):
            return None
        return self._parts.reading.ref_in(room_id, ref_id)

    def new_ref_id(self) -> RefId:
        """Return an id for a ref of the author in this room, which nobody else may use."""
        number = next(self._parts.ref_numbers)
        return own_ref_id(self._parts.now_ms(), str(self.intent.room_id), self.intent.entity, number)

    def counts(self) -> bool:
        """Tell whether what is about to be written into a text would count."""
        return self._parts.texts.may(self.intent.entity, self.intent.doc_id)

    def author_key(self) -> SigningKey:
        """Return the key that the author signs with."""
        return self._parts.keyring.key(self.intent.entity)

    def shared_annotations(self, enabled: tuple[str, ...]) -> list[str]:
        """Return the annotations on refs that are shared maps, of built-ins and of enabled extensions."""
        return self._parts.schema.shared_on(AnnotationPlace.ON_REF, enabled)

    def sign_ref(self) -> None:
        """Put the author's signature of the ref into its fields; only built-ins come late enough to ask for it."""
        key = self.author_key()
        self.fields["signature"] = sign_ref(str(self.intent.room_id), self.fields, key)
