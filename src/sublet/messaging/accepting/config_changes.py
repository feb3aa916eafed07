"""What follows when a room's config has changed: its state is decided anew, and what only now counts is shown.

Rules: the hooks are told of the config before anything else of the same batch, since it decides what else counts.
Weak: whoever is let in late has all earlier elements looked through, which are bounded by what is kept of strangers.
"""

from __future__ import annotations

from sublet.messaging.accepting.config_gathering import ConfigGathering
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.passing.ephemeral import Ephemeral
from sublet.messaging.ports.store import Store
from sublet.messaging.quotas.quotas import Quotas
from sublet.messaging.reading.reading import Reading
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.schema.changes import Happened, RunsHooks
from sublet.messaging.schema.datatypes import Change
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import doc_id


class ConfigChanges:
    """Decides the states of rooms anew.

    Args:
        store: what was accepted and never shown.
        documents: the documents that it is in.
        rooms: the states of rooms.
        reading: what counts.
        hooks: who are told.
        gathering: what waits of a long config.
        quotas: what is charged of strangers.
        ephemeral: who is present.
    """

    def __init__(
        self,
        store: Store,
        documents: OpenDocuments,
        rooms: RoomStates,
        reading: Reading,
        hooks: RunsHooks,
        gathering: ConfigGathering,
        quotas: Quotas,
        ephemeral: Ephemeral,
    ) -> None:
        self._store = store
        self._documents = documents
        self._rooms = rooms
        self._reading = reading
        self._hooks = hooks
        self._gathering = gathering
        self._quotas = quotas
        self._ephemeral = ephemeral

    def changed(self, room_id: RoomId, signer: EntityId, seq: int, *, local: bool) -> None:
        """Decide a room's state anew, tell the hooks, and show what only now counts; inside a transaction.

        Args:
            room_id: the room.
            signer: who has changed its config last.
            seq: the number of that update in the log.
            local: whether it was made here.
        """
        before = self._rooms.changed(room_id)
        after = self._rooms.state(room_id)
        self._gathering.decided(room_id)
        config = doc_id("config", room_id=room_id)
        change = Happened(
            "room_config",
            Change.UPDATE,
            config,
            room_id,
            signer,
            (0, 0),
            local=local,
            before=before,
            after=after,
            seq=seq,
        )
        self._hooks.after_write(change)
        self._quotas.settle(room_id)
        self._ephemeral.settle(room_id)
        for entity, membership in after.entities.items():
            earlier = before.entities.get(entity) if before is not None else None
            if earlier is None or len(membership.grants) != len(earlier.grants):
                self._show(room_id, entity)

    def _show(self, room_id: RoomId, entity: EntityId) -> None:
        """Tell of refs that were here before their author was a member by what is known now."""
        shown: list[tuple[int, tuple[int, int]]] = []
        for row, entry in self._store.hidden_entries([entity]):
            item = (entry.client, entry.clock)
            part = row.doc_id.split("/", 2)[2]
            if row.room_id != room_id or not self._rooms.counts(room_id, entity, part, item):
                continue
            document = self._documents.open(row.doc_id)
            node = document.elements.node(item)
            datatype = self._documents.datatype_of(document)
            if node is None or datatype is None:
                continue
            fields = self._reading.entry(document, node)
            change = Happened(datatype.id, Change.INSERT, row.doc_id, room_id, entity, item, entry.entry_id, fields)
            self._hooks.after_write(change)
            shown.append((row.number, item))
        self._store.mark_shown(shown)
