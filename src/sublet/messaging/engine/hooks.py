"""The hook pipeline: which hooks run, in which order, and what their failures mean (ezagent 2.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from sublet.messaging.engine.contexts import AfterRead, AfterWrite, Happened, Intent, PreSend
from sublet.messaging.engine.declaration import (
    ANY_DATATYPE,
    AfterReadHook,
    AfterWriteHook,
    Change,
    Declaration,
    Origin,
    Phase,
    PreSendHook,
    Trigger,
)
from sublet.messaging.engine.registry import Registry

if TYPE_CHECKING:
    from sublet.messaging.engine.engine import Engine

log = structlog.get_logger(__name__)


class HookPipeline:
    """Hooks by phase and datatype, in their order.

    Args:
        registry: where they are declared.
    """

    def __init__(self, registry: Registry) -> None:
        self._pre_send = [
            (owner, hook) for owner, hook in registry.hooks(Phase.PRE_SEND) if isinstance(hook, PreSendHook)
        ]
        self._after_write = [
            (owner, hook) for owner, hook in registry.hooks(Phase.AFTER_WRITE) if isinstance(hook, AfterWriteHook)
        ]
        self._after_read = [
            (owner, hook) for owner, hook in registry.hooks(Phase.AFTER_READ) if isinstance(hook, AfterReadHook)
        ]
        self._watched = {hook.trigger.datatype for _, hook in self._after_write}

    def watched(self, datatype: str) -> bool:
        """Tell whether any hook waits for changes of a datatype."""
        return datatype in self._watched or ANY_DATATYPE in self._watched

    def pre_send(self, engine: Engine, intent: Intent, contents: dict[str, bytes]) -> None:
        """Run the hooks before something is written.

        Raises:
            SubletError: a hook refuses it; nothing is written.
        """
        context = PreSend(engine, intent, contents)
        for owner, hook in self._pre_send:
            if _fits(hook.trigger, intent.datatype, intent.event, intent) and _enabled(engine, owner, intent.room_id):
                hook.run(context)

    def after_write(self, engine: Engine, change: Happened) -> None:
        """Run the hooks after something was accepted; one that fails is logged, since nothing can be taken back."""
        for owner, hook in self._after_write:
            if not _fits(hook.trigger, change.datatype, change.event, change):
                continue
            if not _enabled(engine, owner, change.room_id) or (hook.writes and not change.local):
                continue
            try:
                hook.run(AfterWrite(engine, change, hook.id, may_write=hook.writes))
            except Exception:
                log.exception("a hook failed", hook=hook.id, datatype=change.datatype)

    def after_read(self, engine: Engine, context: AfterRead) -> None:
        """Run the hooks after something was read; where one fails, the reader gets what there is without it."""
        for owner, hook in self._after_read:
            if hook.trigger.datatype != context.datatype or not _enabled(engine, owner, context.room_id):
                continue
            try:
                hook.run(context)
            except Exception:
                log.exception("a hook failed", hook=hook.id, datatype=context.datatype)


def _fits(trigger: Trigger, datatype: str, event: Change, subject: Any) -> bool:
    return (
        trigger.datatype in (ANY_DATATYPE, datatype)
        and trigger.event in (Change.ANY, event)
        and (trigger.applies is None or trigger.applies(subject))
    )


def _enabled(engine: Engine, owner: Declaration, room_id: str | None) -> bool:
    """Tell whether an extension's hooks run in a room: built-ins always, others where the room has enabled them."""
    if owner.origin is Origin.BUILT_IN or room_id is None:
        return True
    return owner.id in engine.rooms.state(room_id).enabled_extensions
