"""Runs hooks: which ones, in which order, and what their failures mean (ezagent 2.2).

Rules: a hook before a write may refuse it; after a write and after a read a failure is logged, since nothing can be
taken back. A room runs the hooks of what it has enabled. Weak: a hook runs on the engine's thread, so one that takes
long delays everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

import structlog

from sublet.messaging.declaring.after_read import AfterRead, ReadParts
from sublet.messaging.declaring.after_write import AfterWrite, ChangeParts
from sublet.messaging.declaring.declaration import (
    ANY_DATATYPE,
    AfterReadHook,
    AfterWriteHook,
    Declaration,
    Hook,
    Phase,
    PreSendHook,
    Trigger,
)
from sublet.messaging.declaring.pre_send import PreSend, SendParts
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.ports.store import Store
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.schema.changes import Happened, Intent
from sublet.messaging.schema.datatypes import Change, Origin
from sublet.messaging.schema.fields import Fields
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.room.state import RoomState

log = structlog.get_logger(__name__)

HookT = TypeVar("HookT", PreSendHook, AfterWriteHook, AfterReadHook)

OwnedHook = tuple[str | None, HookT]
"""A hook with the extension that a room must have enabled for it; None for those of built-ins."""


class HookPipeline:
    """Hooks by phase and by what they watch, in their order.

    The parts that write, accept and show hold the pipeline, and what a hook may use is made of those parts. So they are
    given to the pipeline once all of them exist, before anything is written.

    Args:
        registry: where the hooks are declared.
        rooms: which extensions a room has enabled.
        store: whether a transaction is open.
    """

    def __init__(self, registry: Registry, rooms: RoomStates, store: Store) -> None:
        self._rooms = rooms
        self._store = store
        self._pre_send = _Watched(registry.hooks(Phase.PRE_SEND), PreSendHook)
        self._after_write = _Watched(registry.hooks(Phase.AFTER_WRITE), AfterWriteHook)
        self._after_read = _Watched(registry.hooks(Phase.AFTER_READ), AfterReadHook)
        self._last: tuple[RoomState, tuple[str, ...]] | None = None
        """What the room enables that was asked about last."""

    def serve(self, sending: SendParts, changing: ChangeParts, reading: ReadParts) -> None:
        """Give the hooks of each phase the parts that they use."""
        self._sending = sending
        self._changing = changing
        self._reading = reading

    def watched(self, datatype: str) -> bool:
        """Tell whether any hook waits for changes of a datatype."""
        return bool(self._after_write.of(datatype, Change.ANY))

    def pre_send(self, intent: Intent, contents: dict[str, bytes]) -> None:
        """Run the hooks before something is written.

        Raises:
            SubletError: a hook refuses it; nothing is written.
        """
        context = PreSend(self._sending, intent, contents)
        enabled = self._enabled(intent.room_id)
        for owner, hook in self._pre_send.of(intent.datatype, intent.event):
            if _runs(owner, enabled) and _applies(hook.trigger, intent):
                hook.run(context)

    def after_write(self, change: Happened) -> None:
        """Run the hooks after something was accepted; one that fails is logged, since nothing can be taken back."""
        enabled, writing = self._enabled(change.room_id), self._store.in_transaction
        for owner, hook in self._after_write.of(change.datatype, change.event):
            if owner is not None and enabled is not None and owner not in enabled:
                continue
            applies = hook.trigger.applies
            if (applies is not None and not applies(change)) or (hook.writes and not change.local):
                continue
            try:
                hook.run(AfterWrite(self._changing, change, hook.id, may_write=hook.writes))
            except Exception:
                if writing and not self._store.in_transaction:
                    raise  # the disk is full, and the database has taken back what was accepted
                log.exception("a hook failed", hook=hook.id, datatype=change.datatype)

    def after_read(
        self,
        datatype: str,
        reader: EntityId,
        room_id: RoomId,
        items: list[Fields],
        query: Mapping[str, str] | None = None,
        *,
        quoted: bool = False,
        page: bool = False,
    ) -> list[Fields]:
        """Run the hooks after something was read, and return what they make of it; see ``AfterRead``.

        Where one fails, the reader gets what there is without it.
        """
        context = AfterRead(self._reading, datatype, reader, room_id, items, query, quoted=quoted, page=page)
        enabled = self._enabled(room_id)
        for owner, hook in self._after_read.of(datatype, Change.ANY):
            if not _runs(owner, enabled):
                continue
            try:
                hook.run(context)
            except Exception:
                log.exception("a hook failed", hook=hook.id, datatype=datatype)
        return context.items

    def _enabled(self, room_id: str | None) -> tuple[str, ...] | None:
        """Return the extensions that a room has enabled; None outside of rooms, where all hooks run."""
        if room_id is None:
            return None
        state = self._rooms.state(room_id)
        if self._last is None or self._last[0] is not state:
            self._last = state, state.enabled_extensions
        return self._last[1]


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


def _runs(owner: str | None, enabled: tuple[str, ...] | None) -> bool:
    return owner is None or enabled is None or owner in enabled
