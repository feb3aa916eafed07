"""The data that is declared: which document holds which datatype, and which rules say who may write it.

Rules: a datatype, a key pattern and an annotation belong to one declaration alone; a third party keeps documents under
its own name only; a rule that can't be parsed is refused at once. Weak: what a room has enabled is not known here, so
a datatype is found for documents of rooms that have switched its extension off as well.
"""

from __future__ import annotations

from typing import Final

from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Datatype, Origin, Widening
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId
from sublet.protocol.ezagent.keys import PATTERNS, doc_id
from sublet.protocol.ezagent.roots import ROOTS, Root, StorageType, ext_root
from sublet.protocol.ezagent.writer_rules import RuleError, WriterRule, parse_rule
from sublet.protocol.patterns import Pattern

NAME: Final = Pattern(r"[a-z][a-z0-9-]{0,31}\Z")
"""Of a declaration."""
_OF_ENTITY: Final = "ezagent/{entity_id}/"
_SUFFIX: Final = "/{state|updates}"


class Schema:
    """Datatypes, annotations and widenings of all declarations."""

    def __init__(self) -> None:
        self.datatypes: dict[str, Datatype] = {}
        self.rules: dict[str, WriterRule] = {}
        self.annotations: dict[tuple[AnnotationPlace, str], Annotation] = {}
        self.annotation_rules: dict[tuple[AnnotationPlace, str], WriterRule] = {}
        self.widenings: dict[str, list[Widening]] = {}
        self._extension_of: dict[tuple[AnnotationPlace, str], str | None] = {}
        """The extension that a room must have enabled for an annotation; None for those of built-ins."""
        self._by_pattern: dict[str, Datatype] = {}

    def add_datatype(self, owner: str, origin: Origin, datatype: Datatype) -> None:
        """Add a datatype of a declaration.

        Raises:
            SubletError: ``CONFLICT``.
        """
        if datatype.id in self.datatypes:
            raise refused(f"two declarations manage {datatype.id}")
        place = _place(datatype.key_pattern)
        if place is None or place in self._by_pattern:
            raise refused(f"{datatype.id} has a key of no known form, or one that is taken: {datatype.key_pattern}")
        if origin is Origin.THIRD_PARTY and place != f"ext:{owner}":
            raise refused(f"{datatype.id} may only be kept under ext/{owner} of a room")
        self.datatypes[datatype.id] = datatype
        self.rules[datatype.id] = _rule(datatype.writer_rule, datatype.id)
        self._by_pattern[place] = datatype

    def add_annotation(self, owner: str, origin: Origin, annotation: Annotation) -> None:
        """Add an annotation of a declaration.

        Raises:
            SubletError: ``CONFLICT``.
        """
        key = (annotation.place, annotation.name)
        if key in self.annotations:
            raise refused(f"two declarations annotate ext.{annotation.name}")
        self.annotations[key] = annotation
        self._extension_of[key] = None if origin is Origin.BUILT_IN else owner
        self.annotation_rules[key] = _rule(annotation.writer_rule, f"ext.{annotation.name}")

    def add_widening(self, owner: str, origin: Origin, widening: Widening) -> None:
        """Let more entities write a datatype.

        Raises:
            SubletError: ``CONFLICT``.
        """
        if origin is Origin.THIRD_PARTY:
            raise refused(f"{owner} lets others write {widening.datatype}, which only standards do")
        self.widenings.setdefault(widening.datatype, []).append(widening)

    def datatype_at(self, kind: str, ext_id: str | None = None) -> Datatype | None:
        """Return the datatype whose documents are of a kind of ``protocol.ezagent.keys``."""
        return self._by_pattern.get(f"{kind}:{ext_id}" if kind in ("ext", "ephemeral") else kind)

    def roots(self, kind: str, ext_id: str | None = None) -> tuple[Root, ...]:
        """Return the root types of a document of a kind."""
        if kind == "ext" and ext_id is not None:
            datatype = self.datatype_at(kind, ext_id)
            return (ext_root(ext_id, datatype.storage_type if datatype else StorageType.CRDT_MAP),)
        return ROOTS.get(kind, ())

    def entity_documents(self, entity: EntityId) -> list[str]:
        """Return the ids of the documents that an entity keeps for all its rooms, by what is declared."""
        return [
            doc_id(kind, entity_id=entity)
            for kind, datatype in self._by_pattern.items()
            if datatype.storage_type is StorageType.CRDT_MAP and PATTERNS.get(kind, "").startswith(_OF_ENTITY)
        ]

    def own_documents(self, enabled: tuple[str, ...]) -> list[str]:
        """Return the extensions of some enabled ones that keep a document of their own name in a room."""
        return [name for name in enabled if f"ext:{name}" in self._by_pattern]

    def shared_on(self, place: AnnotationPlace, enabled: tuple[str, ...]) -> list[str]:
        """Return the annotations of enabled extensions that are shared maps, to be made with what they stand on."""
        return [
            annotation.name
            for (where, _), annotation in self.annotations.items()
            if where is place and annotation.nested and self._is_on((where, annotation.name), enabled)
        ]

    def extension_of(self, place: AnnotationPlace, name: str) -> str | None:
        """Return the extension that declares an annotation; None where a built-in does, or nothing."""
        return self._extension_of.get((place, name))

    def _is_on(self, key: tuple[AnnotationPlace, str], enabled: tuple[str, ...]) -> bool:
        extension = self._extension_of[key]
        return extension is None or extension in enabled


def _place(pattern: str) -> str | None:
    """Return the kind of document that a key pattern stands for; for an extension's own, with its name."""
    plain = (
        pattern.removesuffix(_SUFFIX)
        .replace("@{entity_id}", "{entity_id}")
        .replace("{sha256_hash}", "{hash}")
        .replace("{blob_hash}", "{hash}")
    )
    for kind, known in PATTERNS.items():
        if plain == known and kind != "ext":
            return kind
    if plain == "ezagent/{room_id}/content/{hash}":
        return "immutable"
    head, _, name = plain.rpartition("/")
    if head == "ezagent/{room_id}/ext" and NAME.match(name):
        return f"ext:{name}"
    chunks = plain.split("/")
    if chunks[:3] == ["ezagent", "{room_id}", "ephemeral"] and chunks[4:] == ["{entity_id}"] and NAME.match(chunks[3]):
        return f"ephemeral:{chunks[3]}"
    return None


def _rule(text: str, of: str) -> WriterRule:
    try:
        return parse_rule(text)
    except RuleError as error:
        raise refused(f"the writer rule of {of}: {error}") from None


def refused(message: str) -> SubletError:
    """Return the error for a declaration that may not be registered."""
    return SubletError(
        LocalCode.CONFLICT,
        f"an extension can't be registered: {message}",
        "Change its declaration; see docs/messaging.md.",
    )
