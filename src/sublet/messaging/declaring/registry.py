"""Registers declarations: what depends on what, and what may not be registered (ezagent 2.1, 2.2).

Rules: a third party's hooks come after those of the specification, watch no ``*``, and keep documents under its name
alone. A name belongs to one declaration. Weak: everything is registered at start; nothing is taken away while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from sublet.messaging.declaring.declaration import (
    ANY_DATATYPE,
    MIN_THIRD_PARTY_PRIORITY,
    Declaration,
    Hook,
    Index,
    Operation,
    Phase,
    Refresh,
)
from sublet.messaging.schema.datatypes import Origin
from sublet.messaging.schema.schema import NAME, Schema, refused
from sublet.protocol.patterns import Pattern

LEVELS: Final = (
    ("identity", "room", "timeline", "message"),
    ("mutable", "reactions", "reply-to", "read-receipts", "presence", "media"),
    ("collab", "channels", "moderation", "cross-room-ref", "profile", "watch"),
    ("threads", "drafts"),
)
"""What each compliance level adds (ezagent 6.3)."""
_OPERATION = Pattern(r"[a-z][a-z_]*(?:\.[a-z][a-z_]*)?\Z")


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
            raise refused("two declarations have the same id")
        self.declarations = _resolved(by_id)
        self.rank = {declaration.id: place for place, declaration in enumerate(self.declarations)}
        self.schema = Schema()
        self.indexes: dict[str, Index] = {}
        self.operations: dict[str, Operation] = {}
        hooks: set[str] = set()
        for declaration in self.declarations:
            self._add(declaration, hooks)
        for declaration in self.declarations:
            for hook in _hooks(declaration):
                if hook.trigger.datatype != ANY_DATATYPE and hook.trigger.datatype not in self.schema.datatypes:
                    raise refused(f"{hook.id} watches {hook.trigger.datatype}, which nothing declares")

    def hooks(self, phase: Phase) -> list[tuple[Declaration, Hook]]:
        """Return the hooks of a phase in the order in which they run: by priority, then by dependency, then by name."""
        found: list[tuple[Declaration, Hook]] = [
            (declaration, hook) for declaration in self.declarations for hook in getattr(declaration.hooks, phase)
        ]
        return sorted(found, key=lambda pair: (_last(pair[1]), pair[1].priority, self.rank[pair[0].id], pair[1].id))

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
            self.schema.add_datatype(declaration.id, declaration.origin, datatype)
        for hook in _hooks(declaration):
            _check_hook(declaration, hook)
            if hook.id in hooks:
                raise refused(f"two hooks are called {hook.id}")
            hooks.add(hook.id)
        for annotation in declaration.annotations:
            self.schema.add_annotation(declaration.id, declaration.origin, annotation)
        for index in declaration.indexes:
            if index.id in self.indexes or (index.operation_id is not None) != (index.read is not None):
                raise refused(f"the index {index.id} exists already, or its operation has no function")
            if (index.refresh is Refresh.PERIODIC) != (index.rebuild is not None and index.every_seconds is not None):
                raise refused(f"the index {index.id} tells when it is made anew, or what makes it, but not both")
            self.indexes[index.id] = index
            if index.operation_id is not None and index.read is not None:
                self._add_operation(Operation(index.operation_id, index.read, goes_back=index.goes_back))
        for operation in declaration.operations:
            extension = None if declaration.origin is Origin.BUILT_IN else declaration.id
            self._add_operation(replace(operation, extension=extension))
        for widening in declaration.widenings:
            self.schema.add_widening(declaration.id, declaration.origin, widening)

    def _add_operation(self, operation: Operation) -> None:
        if operation.id in self.operations or not _OPERATION.match(operation.id):
            raise refused(f"the operation {operation.id!r} exists already, or is no name")
        self.operations[operation.id] = operation


def _resolved(by_id: dict[str, Declaration]) -> list[Declaration]:
    """Return declarations so that each comes after what it depends on; by name where the order is free."""
    order: list[Declaration] = []
    done: set[str] = set()
    waiting = sorted(by_id)
    for declaration in by_id.values():
        if not NAME.match(declaration.id):
            raise refused(f"{declaration.id!r} is no name of a declaration")
        missing = sorted(set(declaration.dependencies) - set(by_id))
        if missing:
            raise refused(f"{declaration.id} depends on {', '.join(missing)}, which is not here")
    while waiting:
        ready = [name for name in waiting if set(by_id[name].dependencies) <= done]
        if not ready:
            raise refused(f"these depend on each other: {', '.join(waiting)}")
        for name in ready:
            order.append(by_id[name])
            done.add(name)
        waiting = [name for name in waiting if name not in done]
    return order


def _check_hook(declaration: Declaration, hook: Hook) -> None:
    built_in = declaration.origin is Origin.BUILT_IN
    if hook.trigger.datatype == ANY_DATATYPE and not built_in:
        raise refused(f"only built-ins watch everything, not {hook.id}")
    if _last(hook) and not built_in:
        raise refused(f"only built-ins come last, not {hook.id}")
    if declaration.origin is Origin.THIRD_PARTY and hook.priority < MIN_THIRD_PARTY_PRIORITY:
        raise refused(f"{hook.id} has priority {hook.priority}; from {MIN_THIRD_PARTY_PRIORITY} on are for others")
    if hook.priority < 0:
        raise refused(f"{hook.id} has a negative priority")


def _hooks(declaration: Declaration) -> tuple[Hook, ...]:
    return (*declaration.hooks.pre_send, *declaration.hooks.after_write, *declaration.hooks.after_read)


def _last(hook: Hook) -> bool:
    return getattr(hook, "last", False)
