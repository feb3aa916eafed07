"""Who may write what: what can never become allowed is refused, what may change is left out when reading (DESIGN 6.4).

Only the rules of the built-ins refuse, since every peer has those alike; the rules of extensions, which a peer of a
lower level doesn't know, decide only when reading. Otherwise two peers would hold different logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sublet.messaging.documents.document import Document
from sublet.messaging.documents.plan import NewEntry, NewWrite, Plan
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Datatype, ReadsMaps, Write
from sublet.messaging.schema.schema import Schema
from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.ids import EntityId, is_own_content_id, is_own_ref_id
from sublet.protocol.ezagent.order import AFTER, parse_after
from sublet.protocol.ezagent.purge import is_tombstone
from sublet.protocol.ezagent.ref_shape import CHANGEABLE, EXTENSION, FIXED, MAX_STATUS_CHARS, fits, is_json, misfit
from sublet.protocol.ezagent.yjs.update import ItemId

MAX_ENTRY_ID_CHARS: Final = 128
MAX_KEY_CHARS: Final = 512


@dataclass(slots=True)
class _Write:
    """The facts about one write, for a writer rule."""

    rooms: RoomStates
    room_id: str | None
    part: str
    signer: EntityId
    item: ItemId
    key: str | None
    names: dict[str, EntityId | None]
    first: bool = True
    editors: frozenset[EntityId] = frozenset()

    def named(self, attribute: str) -> EntityId | None:
        return self.names.get(attribute)

    def is_member(self) -> bool:
        return self.room_id is not None and self.rooms.counts(self.room_id, self.signer, self.part, self.item)

    def power_reaches(self, level: str) -> bool:
        if self.room_id is None:
            return False
        name = level.removeprefix("ext.")
        return self.rooms.counts(self.room_id, self.signer, self.part, self.item, name)

    def is_owner(self) -> bool:
        if self.room_id is None:
            return False
        return self.rooms.state(self.room_id).was_owner(self.signer, self.part, self.item)

    def is_editor(self) -> bool:
        return self.signer in self.editors


def refuse_forbidden(datatype: Datatype | None, document: Document, signer: EntityId, plan: Plan) -> None:
    """Refuse what no peer may ever accept.

    Raises:
        Refused: ``FOREIGN_AUTHOR``, ``FOREIGN_KEY``, or ``WRONG_SHAPE``.
    """
    place = document.place
    if place.entity_id is not None and place.entity_id != signer:
        raise Refused(Refusal.FOREIGN_KEY, "a document of another entity")
    for entry in plan.entries:
        _check_entry(datatype, document, signer, entry)
    for write in plan.writes:
        if any(len(key) > MAX_KEY_CHARS for key in write.located.path):
            raise Refused(Refusal.WRONG_SHAPE, "a key is too long")
        if not is_json(write.value):
            raise Refused(Refusal.WRONG_SHAPE, "a value that is no JSON")
        if write.located.entry is not None:
            _check_write(document, signer, write)
        if place.kind == "purge" and not is_tombstone(write.located.path, write.value):
            raise Refused(Refusal.WRONG_SHAPE, "a tombstone of another form")


def _check_entry(datatype: Datatype | None, document: Document, signer: EntityId, entry: NewEntry) -> None:
    fields = entry.fields
    author, name = (datatype.entry_author, datatype.entry_id) if datatype is not None else ("author", "ref_id")
    if fields.get(author) != signer:
        raise Refused(Refusal.FOREIGN_AUTHOR, "an element in the name of another entity")
    entry_id = fields.get(name)
    if not isinstance(entry_id, str) or not 0 < len(entry_id) <= MAX_ENTRY_ID_CHARS:
        raise Refused(Refusal.WRONG_SHAPE, f"an element without {name}")
    if max(map(len, fields)) > MAX_KEY_CHARS:
        raise Refused(Refusal.WRONG_SHAPE, "a key is too long")
    if document.place.kind != "index" and not is_json(fields):  # of a ref, each field is looked at below
        raise Refused(Refusal.WRONG_SHAPE, "a value that is no JSON")
    if document.place.kind == "index":
        wrong = misfit(fields)
        if wrong is not None:
            raise Refused(Refusal.WRONG_SHAPE, f"a ref with another {wrong[:MAX_STATUS_CHARS]} than refs have")
        if AFTER in fields and parse_after(fields[AFTER]) is None:
            raise Refused(Refusal.WRONG_SHAPE, "a ref behind what is none")
        if not is_own_ref_id(entry_id, str(document.place.room_id), signer):
            raise Refused(Refusal.FOREIGN_AUTHOR, "a ref under an id that is not its author's")


def _check_write(document: Document, signer: EntityId, write: NewWrite) -> None:
    if document.place.kind != "index":
        return
    top = write.located.path[0]
    if top.startswith(EXTENSION):
        return
    entry = write.located.entry
    node = document.elements.node(entry) if entry is not None else None
    author = node.signer if node is not None else signer
    if top in FIXED or len(write.located.path) > 1:
        raise Refused(Refusal.FOREIGN_KEY, "a field that never changes")
    if top not in CHANGEABLE:
        raise Refused(Refusal.WRONG_SHAPE, "a field that no ref has")
    if author != signer:
        raise Refused(Refusal.FOREIGN_AUTHOR, "a core field of another's ref")
    if not fits(top, write.value):
        raise Refused(Refusal.WRONG_SHAPE, f"another {top} than refs have")


class WriterRules:
    """Decides which later writes count, by the writer rules of the declarations and who is a member.

    Args:
        schema: the rules.
        rooms: who is in which room with which power.
    """

    def __init__(self, schema: Schema, rooms: RoomStates) -> None:
        self._schema = schema
        self._rooms = rooms

    def shared_map(self, key: str) -> Annotation | None:
        """Return the annotation of a ref that is a shared map under a key; None where it is another or none."""
        annotation = self._schema.annotations.get((AnnotationPlace.ON_REF, key.removeprefix("ext.")))
        return annotation if annotation is not None and annotation.nested else None

    def annotation_counts(
        self,
        document: Document,
        author: EntityId,
        path: tuple[str, ...],
        signer: EntityId,
        item: ItemId,
        *,
        founded: bool,
    ) -> bool:
        """Tell whether a later write to an annotation of a ref counts.

        Args:
            document: the timeline.
            author: who wrote the ref.
            path: keys from the ref on, ``ext.{name}`` first.
            signer: who wrote this.
            item: its id.
            founded: whether the author made the annotation's nested map with the ref.
        """
        annotation = self._schema.annotations.get((AnnotationPlace.ON_REF, path[0].removeprefix("ext.")))
        room_id = document.place.room_id
        if room_id is None or not self._rooms.counts(room_id, signer, document.room_part, item):
            return False
        if annotation is None:
            return True  # kept as it is, for those who know it
        if annotation.nested and len(path) == 1:
            return not founded
        rule = self._schema.annotation_rules[AnnotationPlace.ON_REF, annotation.name]
        names: dict[str, EntityId | None] = {"ref.author": author, "author": author}
        return rule.counts(_Write(self._rooms, room_id, document.room_part, signer, item, path[-1], names))

    def first_key_counts(self, annotation: Annotation, signer: EntityId, key: str) -> bool:
        """Tell whether a ref's author may have filled in a key of a nested annotation at once."""
        rule = self._schema.annotation_rules[AnnotationPlace.ON_REF, annotation.name]
        names: dict[str, EntityId | None] = {"ref.author": signer, "author": signer}
        return rule.acceptable(_Write(self._rooms, None, "", signer, (0, 0), key, names))

    def document_write_counts(
        self,
        maps: ReadsMaps,
        document: Document,
        path: tuple[str, ...],
        signer: EntityId,
        item: ItemId,
        *,
        first: bool,
    ) -> bool:
        """Tell whether a write to a map or a text, or an element of an extension's array, counts.

        Its datatype's rule decides, and what others of the specification widen it to.

        Args:
            maps: reads what widenings ask for.
            document: what was written to.
            path: keys from its root on.
            signer: who wrote.
            item: the id of what was written.
            first: whether nothing was there before.
        """
        place = document.place
        datatype = self._schema.datatype_at(place.kind, place.ext_id)
        if datatype is None:
            return False
        names: dict[str, EntityId | None] = {"entity_id": place.entity_id}
        if place.content_id is not None and place.room_id is not None:
            # The id of such content tells whose it is, to whoever asks for one of them.
            own = is_own_content_id(place.content_id, place.room_id, signer)
            names["content.author"] = names["acl.owner"] = signer if own else None
        if place.ref_id is not None and place.room_id is not None:
            # So does the id of a message, whether that is here or not.
            names["ref.author"] = signer if is_own_ref_id(place.ref_id, place.room_id, signer) else None
        key = path[0] if path else None
        facts = _Write(self._rooms, place.room_id, document.room_part, signer, item, key, names, first)
        if self._schema.rules[datatype.id].counts(facts):
            return True
        widenings = self._schema.widenings.get(datatype.id, ())
        if not widenings:
            return False
        write = Write(place, path, signer, item, facts.is_member())
        return any(widening.counts(maps, write) for widening in widenings)
