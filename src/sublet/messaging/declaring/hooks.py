"""The hook pipeline: which hooks run, in which order, and what their failures mean (ezagent 2.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from sublet.messaging.declaring.contexts import AfterRead, AfterWrite, Happened, Intent, PreSend
from sublet.messaging.declaring.declaration import (
    ANY_DATATYPE,
    AfterReadHook,
    AfterWriteHook,
    Change,
    Declaration,
    Hook,
    Origin,
    Phase,
    PreSendHook,
    Trigger,
)
from sublet.messaging.declaring.registry import Registry

if TYPE_CHECKING:
    from sublet.messaging.engine.engine import Engine

log = structlog.get_logger(__name__)

HookT = TypeVar("HookT", PreSendHook, AfterWriteHook, AfterReadHook)

OwnedHook = tuple[str | None, HookT]
"""A hook with the extension that a room must have enabled for it; None for those of built-ins."""


class HookPipeline:
    """Hooks by phase and by what they watch, in their order.

    Args:
        registry: where they are declared.
    """

    def __init__(self, registry: Registry) -> None:
        self._pre_send = _Watched(registry.hooks(Phase.PRE_SEND), PreSendHook)
        self._after_write = _Watched(registry.hooks(Phase.AFTER_WRITE), AfterWriteHook)
        self._after_read = _Watched(registry.hooks(Phase.AFTER_READ), AfterReadHook)

    def watched(self, datatype: str) -> bool:
        """Tell whether any hook waits for changes of a datatype."""
        return bool(self._after_write.of(datatype, Change.ANY))

    def pre_send(self, engine: Engine, intent: Intent, contents: dict[str, bytes]) -> None:
        """Run the hooks before something is written.

        Raises:
            SubletError: a hook refuses it; nothing is written.
        """
        context = PreSend(engine, intent, contents)
        enabled = _enabled(engine, intent.room_id)
        for owner, hook in self._pre_send.of(intent.datatype, intent.event):
            if _runs(owner, enabled) and _applies(hook.trigger, intent):
                hook.run(context)

    def after_write(self, engine: Engine, change: Happened) -> None:
        """Run the hooks after something was accepted; one that fails is logged, since nothing can be taken back."""
        enabled, writing = _enabled(engine, change.room_id), engine.store.in_transaction
        for owner, hook in self._after_write.of(change.datatype, change.event):
            if not _runs(owner, enabled) or (hook.writes and not change.local) or not _applies(hook.trigger, change):
                continue
            try:
                hook.run(AfterWrite(engine, change, hook.id, may_write=hook.writes))
            except Exception:
                if writing and not engine.store.in_transaction:
                    raise  # the disk is full, and the database has taken back what was accepted
                log.exception("a hook failed", hook=hook.id, datatype=change.datatype)

    def after_read(self, engine: Engine, context: AfterRead) -> None:
        """Run the hooks after something was read; where one fails, the reader gets what there is without it."""
        enabled = _enabled(engine, context.room_id)
        for owner, hook in self._after_read.of(context.datatype, Change.ANY):
            if not _runs(owner, enabled):
                continue
            try:
                hook.run(context)
            except Exception:
                log.exception("a hook failed", hook=hook.id, datatype=context.datatype)


class _Watched(Generic[HookT]):
    """Hooks of one phase, by datatype and change, found once for each of them."""

    def __init__(self, hooks: Iterable[tuple[Declaration, Hook]], kind: type[HookT]) -> None:
        self._all: list[tuple[Declaration, HookT]] = [(owner, hook) for owner, hook in hooks if isinstance(hook, kind)]
        self._found: dict[tuple[str, Change], list[OwnedHook[HookT]]] = {}

    def of(self, datatype: str, change: Change) -> list[OwnedHook[HookT]]:
        """Return the hooks that watch a change of a datatype, in their order; for ``ANY``, all that watch it."""
        found = self._found.get((datatype, change))
        if found is None:
            found = self._found[datatype, change] = [
                (None if owner.origin is Origin.BUILT_IN else owner.id, hook)
                for owner, hook in self._all
                if hook.trigger.datatype in (ANY_DATATYPE, datatype)
                and (change is Change.ANY or hook.trigger.event in (Change.ANY, change))
            ]
        return found


def _applies(trigger: Trigger, subject: Intent | Happened) -> bool:
    return trigger.applies is None or trigger.applies(subject)


def _enabled(engine: Engine, room_id: str | None) -> tuple[str, ...] | None:
    """Return the extensions that a room has enabled; None outside of rooms, where all hooks run."""
    return engine.rooms.state(room_id).enabled_extensions if room_id is not None else None


def _runs(owner: str | None, enabled: tuple[str, ...] | None) -> bool:
    return owner is None or enabled is None or owner in enabled
