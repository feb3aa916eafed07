"""The registry of declarations: what depends on what, and what may not be registered (ezagent 2.1, 2.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sublet.messaging.declaring.declaration import (
    ANY_DATATYPE,
    MIN_THIRD_PARTY_PRIORITY,
    Annotation,
    AnnotationPlace,
    Datatype,
    Declaration,
    Hook,
    Index,
    Operation,
    Origin,
    Phase,
    Refresh,
    Widening,
)
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId
from sublet.protocol.ezagent.keys import PATTERNS, doc_id
from sublet.protocol.ezagent.roots import ROOTS, Root, StorageType, ext_root
from sublet.protocol.ezagent.writer_rules import RuleError, WriterRule, parse_rule
from sublet.protocol.patterns import Pattern

LEVELS: Final = (
    ("identity", "room", "timeline", "message"),
    ("mutable", "reactions", "reply-to", "read-receipts", "presence", "media"),
    ("collab", "channels", "moderation", "cross-room-ref", "profile", "watch"),
    ("threads", "drafts"),
)
"""What each compliance level adds (ezagent 6.3)."""
_NAME = Pattern(r"[a-z][a-z0-9-]{0,31}\Z")
_OPERATION = Pattern(r"[a-z][a-z_]*(?:\.[a-z][a-z_]*)?\Z")
_OF_ENTITY: Final = "ezagent/{entity_id}/"
_SUFFIX: Final = "/{state|updates}"


class Registry:
    """Declarations in the order of their dependencies.

    Args:
        declarations: all of them, in any order.

    Raises:
        SubletError: ``CONFLICT``: a cycle, a missing dependency, a name used twice, a rule that can't be parsed, a hook
            or a key that such a declaration may not register.
    """

    def __init__(self, declarations: Iterable[Declaration]) -> None:
        given = list(declarations)
        by_id = {declaration.id: declaration for declaration in given}
        if len(by_id) != len(given):
            raise _refused("two declarations have the same id")
        self.declarations = _resolved(by_id)
        self.rank = {declaration.id: place for place, declaration in enumerate(self.declarations)}
        self.datatypes: dict[str, Datatype] = {}
        self.owner: dict[str, str] = {}
        self.rules: dict[str, WriterRule] = {}
        self.annotations: dict[tuple[AnnotationPlace, str], Annotation] = {}
        self.annotation_owner: dict[tuple[AnnotationPlace, str], Declaration] = {}
        self.annotation_rules: dict[tuple[AnnotationPlace, str], WriterRule] = {}
        self.indexes: dict[str, Index] = {}
        self.operations: dict[str, Operation] = {}
        self.widenings: dict[str, list[Widening]] = {}
        self._by_pattern: dict[str, Datatype] = {}
        hooks: set[str] = set()
        for declaration in self.declarations:
            self._add(declaration, hooks)
        for declaration in self.declarations:
            for hook in _hooks(declaration):
                if hook.trigger.datatype != ANY_DATATYPE and hook.trigger.datatype not in self.datatypes:
                    raise _refused(f"{hook.id} watches {hook.trigger.datatype}, which nothing declares")

    def hooks(self, phase: Phase) -> list[tuple[Declaration, Hook]]:
        """Return the hooks of a phase in the order in which they run: by priority, then by dependency, then by name."""
        found: list[tuple[Declaration, Hook]] = [
            (declaration, hook) for declaration in self.declarations for hook in getattr(declaration.hooks, phase)
        ]
        return sorted(found, key=lambda pair: (_last(pair[1]), pair[1].priority, self.rank[pair[0].id], pair[1].id))

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

    def _is_on(self, key: tuple[AnnotationPlace, str], enabled: tuple[str, ...]) -> bool:
        owner = self.annotation_owner[key]
        return owner.origin is Origin.BUILT_IN or owner.id in enabled

    @property
    def level(self) -> int | None:
        """Return the highest compliance level whose parts are all here; None below level 0."""
        reached: int | None = None
        for level, parts in enumerate(LEVELS):
            if not all(part in self.rank for part in parts):
                break
            reached = level
        return reached

    def _add(self, declaration: Declaration, hooks: set[str]) -> None:
        for datatype in declaration.datatypes:
            self._add_datatype(declaration, datatype)
        for hook in _hooks(declaration):
            _check_hook(declaration, hook)
            if hook.id in hooks:
                raise _refused(f"two hooks are called {hook.id}")
            hooks.add(hook.id)
        for annotation in declaration.annotations:
            key = (annotation.place, annotation.name)
            if key in self.annotations:
                raise _refused(f"two declarations annotate ext.{annotation.name}")
            self.annotations[key] = annotation
            self.annotation_owner[key] = declaration
            self.annotation_rules[key] = _rule(annotation.writer_rule, f"ext.{annotation.name}")
        for index in declaration.indexes:
            if index.id in self.indexes or (index.operation_id is not None) != (index.read is not None):
                raise _refused(f"the index {index.id} exists already, or its operation has no function")
            if (index.refresh is Refresh.PERIODIC) != (index.rebuild is not None and index.every_seconds is not None):
                raise _refused(f"the index {index.id} tells when it is made anew, or what makes it, but not both")
            self.indexes[index.id] = index
            if index.operation_id is not None and index.read is not None:
                self._add_operation(Operation(index.operation_id, index.read, goes_back=index.goes_back))
        for operation in declaration.operations:
            self._add_operation(operation)
        for widening in declaration.widenings:
            if declaration.origin is Origin.THIRD_PARTY:
                raise _refused(f"{declaration.id} lets others write {widening.datatype}, which only standards do")
            self.widenings.setdefault(widening.datatype, []).append(widening)

    def _add_operation(self, operation: Operation) -> None:
        if operation.id in self.operations or not _OPERATION.match(operation.id):
            raise _refused(f"the operation {operation.id!r} exists already, or is no name")
        self.operations[operation.id] = operation

    def _add_datatype(self, declaration: Declaration, datatype: Datatype) -> None:
        if datatype.id in self.datatypes:
            raise _refused(f"two declarations manage {datatype.id}")
        place = _place(datatype.key_pattern)
        if place is None or place in self._by_pattern:
            raise _refused(f"{datatype.id} has a key of no known form, or one that is taken: {datatype.key_pattern}")
        if declaration.origin is Origin.THIRD_PARTY and place != f"ext:{declaration.id}":
            raise _refused(f"{datatype.id} may only be kept under ext/{declaration.id} of a room")
        self.datatypes[datatype.id] = datatype
        self.owner[datatype.id] = declaration.id
        self.rules[datatype.id] = _rule(datatype.writer_rule, datatype.id)
        self._by_pattern[place] = datatype


def _resolved(by_id: dict[str, Declaration]) -> list[Declaration]:
    """Return declarations so that each comes after what it depends on; by name where the order is free."""
    order: list[Declaration] = []
    done: set[str] = set()
    waiting = sorted(by_id)
    for declaration in by_id.values():
        if not _NAME.match(declaration.id):
            raise _refused(f"{declaration.id!r} is no name of a declaration")
        missing = sorted(set(declaration.dependencies) - set(by_id))
        if missing:
            raise _refused(f"{declaration.id} depends on {', '.join(missing)}, which is not here")
    while waiting:
        ready = [name for name in waiting if set(by_id[name].dependencies) <= done]
        if not ready:
            raise _refused(f"these depend on each other: {', '.join(waiting)}")
        for name in ready:
            order.append(by_id[name])
            done.add(name)
        waiting = [name for name in waiting if name not in done]
    return order


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
    if head == "ezagent/{room_id}/ext" and _NAME.match(name):
        return f"ext:{name}"
    chunks = plain.split("/")
    if chunks[:3] == ["ezagent", "{room_id}", "ephemeral"] and chunks[4:] == ["{entity_id}"] and _NAME.match(chunks[3]):
        return f"ephemeral:{chunks[3]}"
    return None


def _check_hook(declaration: Declaration, hook: Hook) -> None:
    built_in = declaration.origin is Origin.BUILT_IN
    if hook.trigger.datatype == ANY_DATATYPE and not built_in:
        raise _refused(f"only built-ins watch everything, not {hook.id}")
    if _last(hook) and not built_in:
        raise _refused(f"only built-ins come last, not {hook.id}")
    if declaration.origin is Origin.THIRD_PARTY and hook.priority < MIN_THIRD_PARTY_PRIORITY:
        raise _refused(f"{hook.id} has priority {hook.priority}; from {MIN_THIRD_PARTY_PRIORITY} on are for others")
    if hook.priority < 0:
        raise _refused(f"{hook.id} has a negative priority")


def _hooks(declaration: Declaration) -> tuple[Hook, ...]:
    return (*declaration.hooks.pre_send, *declaration.hooks.after_write, *declaration.hooks.after_read)


def _last(hook: Hook) -> bool:
    return getattr(hook, "last", False)


def _rule(text: str, of: str) -> WriterRule:
    try:
        return parse_rule(text)
    except RuleError as error:
        raise _refused(f"the writer rule of {of}: {error}") from None


def _refused(message: str) -> SubletError:
    return SubletError(
        LocalCode.CONFLICT,
        f"an extension can't be registered: {message}",
        "Change its declaration; see docs/messaging.md.",
    )
