"""The engine: makes the parts of messaging over one store, in the order in which they need each other.

Rules: it decides nothing. A part is given what it needs when it is made, and none is given the engine. The one knot is
untied here: the parts that write and accept run hooks, and hooks use those parts, so ``HookPipeline.serve`` is called
last. All of it belongs to one thread; ``commit`` ends a batch, ``forget`` goes back to what is durable.
Weak: whoever reads ``engine.X`` from outside should take a part, or a small ``Protocol`` of the parts that it uses.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable

from sublet.messaging.accepting.accepted import ChangeTeller
from sublet.messaging.accepting.config_changes import ConfigChanges
from sublet.messaging.accepting.config_gathering import ConfigGathering
from sublet.messaging.accepting.staging import Staging
from sublet.messaging.declaring.after_read import ReadParts
from sublet.messaging.declaring.after_write import ChangeParts
from sublet.messaging.declaring.hooks import HookPipeline
from sublet.messaging.declaring.operating import OperationParts
from sublet.messaging.declaring.pre_send import SendParts
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.declaring.showing import Showing
from sublet.messaging.events.cursors import Cursors
from sublet.messaging.events.events import Events
from sublet.messaging.identities.epochs import Epochs
from sublet.messaging.identities.keyring import Keyring, LocalEntity
from sublet.messaging.intake.intake import Intake
from sublet.messaging.opening.accepted_updates import AcceptedUpdates
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.opening.room_order import RoomOrder
from sublet.messaging.opening.shards import TimelineShards
from sublet.messaging.passing.ephemeral import Ephemeral
from sublet.messaging.ports.blobs import BlobStore
from sublet.messaging.ports.invitation_store import Invitation
from sublet.messaging.ports.outbox import Outbox
from sublet.messaging.ports.store import Store
from sublet.messaging.purging.purges import Purges
from sublet.messaging.quotas.quotas import Quotas
from sublet.messaging.quotas.usage import DEFAULT_DAEMON_BYTES, DiskUsage
from sublet.messaging.reading.authorise import WriterRules
from sublet.messaging.reading.reading import Reading
from sublet.messaging.reconciling.roots import Roots
from sublet.messaging.rooms.audience import Audience
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.sealing.carrying import Carrying
from sublet.messaging.sealing.room_seals import RoomSeals
from sublet.messaging.texts.texts import Texts
from sublet.messaging.trust.clocks import PeerClocks
from sublet.messaging.trust.forks import Forks
from sublet.messaging.writing.later import Later
from sublet.messaging.writing.writing import Writing
from sublet.protocol.ezagent.ids import RoomId


class Engine:
    """All parts over one store.

    Args:
        registry: what is declared.
        store: the database.
        local: our own entities.
        now_ms: the clock, Unix milliseconds.
        blobs: keeps files.
        daemon_bytes: of all that the entities of one other daemon have written, in all rooms.
    """

    def __init__(
        self,
        registry: Registry,
        store: Store,
        local: list[LocalEntity],
        now_ms: Callable[[], int],
        blobs: BlobStore,
        daemon_bytes: int = DEFAULT_DAEMON_BYTES,
    ) -> None:
        schema = registry.schema
        self.registry, self.schema, self.store, self.blobs, self.now_ms = registry, schema, store, blobs, now_ms
        self.outbox = Outbox()
        self.missing: list[Callable[[str], None]] = []
        """Told of documents that something refers to and that are not here."""
        self.answered: list[Callable[[Invitation], None]] = []
        """Told of what somebody here has said to an invitation."""
        # Who and where.
        self.keyring = Keyring(store, local)
        self.epochs = Epochs(store, self.keyring)
        self.rooms = RoomStates(store)
        self.here = RoomsHere(store, self.rooms, self.keyring)
        self.audience = Audience(self.rooms, self.here, self.keyring)
        self.events = Events(store)
        self.cursors = Cursors(store, self.events)
        # Documents, and what of them counts.
        self.updates = AcceptedUpdates(store)
        self.documents = OpenDocuments(store, schema, self.updates, self.keyring, self.here)
        self.shards = TimelineShards(store, self.documents, self.rooms, now_ms)
        self.order = RoomOrder(store, self.documents)
        self.documents.closed.append(self.order.forget)
        self.usage = DiskUsage(store, daemon_bytes, self.keyring.home)
        self.quotas = Quotas(store, self.usage, self.rooms, self.here, self.keyring, self.documents, self.shards)
        rules = WriterRules(schema, self.rooms)
        self.reading = Reading(store, self.documents, self.updates, self.rooms, rules)
        self.hooks = HookPipeline(registry, self.rooms, store)
        self.shows = Showing(self.reading, self.here, self.hooks)
        # Taking what comes.
        self.ephemeral = Ephemeral(self.here, self.keyring, schema, self.hooks, self.events, self.outbox, now_ms)
        gathering = ConfigGathering(self.rooms, now_ms)
        configs = ConfigChanges(
            store, self.documents, self.rooms, self.reading, self.hooks, gathering, self.quotas, self.ephemeral
        )
        teller = ChangeTeller(self.hooks, self.documents, store, self.updates, self.rooms, self.reading, configs)
        counts = Counter[str]()
        self.staging = Staging(
            store,
            self.documents,
            self.updates,
            self.rooms,
            self.order,
            self.quotas,
            self.usage,
            self.events,
            gathering,
            teller,
            counts,
        )
        self.forks = Forks(
            store, self.documents, self.keyring, self.quotas, self.staging, configs, self.hooks, self.events, self.order
        )
        self.intake = Intake(
            store,
            self.documents,
            self.keyring,
            self.here,
            self.quotas,
            self.ephemeral,
            gathering,
            self.staging,
            self.forks,
            self.order,
            counts,
        )
        self.clocks = PeerClocks(store, self.events, now_ms, self.keyring.home)
        self.roots = Roots(store, self.keyring, self.here, self.events, now_ms)
        # Writing as our own.
        self.writing = Writing(
            self.documents,
            self.order,
            self.reading,
            self.hooks,
            self.quotas,
            self.keyring,
            self.staging,
            self.outbox,
            now_ms,
        )
        self.texts = Texts(
            store,
            self.documents,
            self.rooms,
            self.reading,
            self.keyring,
            self.hooks,
            self.writing,
            self.staging,
        )
        self.seals = RoomSeals(
            store,
            self.rooms,
            self.here,
            self.keyring,
            self.documents,
            self.reading,
            self.writing,
            self.events,
            now_ms,
        )
        self.carrying = Carrying(self.seals, self.rooms, self.audience, counts)
        self.purges = Purges(store, self.documents, self.updates, self.reading, self.keyring, self.events)
        self.purges.missing.append(self._want)
        self.staging.landed.append(self.purges.landed)
        self.later = Later(self.writing)
        self.staging.forgetting.append(self.forget)
        self.operating = self._serve_hooks()

    def _serve_hooks(self) -> OperationParts:
        """Give the hooks the parts that they use, and return those that operations use."""
        operating = OperationParts(
            store=self.store,
            schema=self.schema,
            declared=self.registry,
            rooms=self.rooms,
            here=self.here,
            documents=self.documents,
            shards=self.shards,
            order=self.order,
            reading=self.reading,
            shows=self.shows,
            writing=self.writing,
            texts=self.texts,
            keyring=self.keyring,
            ephemeral=self.ephemeral,
            events=self.events,
            cursors=self.cursors,
            intake=self.intake,
            purges=self.purges,
            seals=self.seals,
            blobs=self.blobs,
            hooks=self.hooks,
            content_numbers=itertools.count(),  # they tell apart what is edited for the first time in one millisecond
            now_ms=self.now_ms,
        )
        sending = SendParts(
            store=self.store,
            schema=self.schema,
            rooms=self.rooms,
            here=self.here,
            reading=self.reading,
            texts=self.texts,
            keyring=self.keyring,
            epochs=self.epochs,
            blobs=self.blobs,
            ref_numbers=itertools.count(
                int.from_bytes(os.urandom(2), "big")
            ),  # they tell apart refs of one millisecond
            now_ms=self.now_ms,
        )
        changing = ChangeParts(
            store=self.store,
            rooms=self.rooms,
            here=self.here,
            documents=self.documents,
            reading=self.reading,
            texts=self.texts,
            keyring=self.keyring,
            epochs=self.epochs,
            events=self.events,
            later=self.later,
            purges=self.purges,
            seals=self.seals,
            missing=self.missing,
            now_ms=self.now_ms,
        )
        reading = ReadParts(
            store=self.store,
            rooms=self.rooms,
            documents=self.documents,
            reading=self.reading,
            shows=self.shows,
            texts=self.texts,
            events=self.events,
            later=self.later,
            operating=operating,
        )
        self.hooks.serve(sending, changing, reading)
        return operating

    def commit(self) -> None:
        """Write what waits, make everything durable, and run what hooks have put off."""
        self.writing.flush()
        self.staging.commit()
        while self.later.run():
            self.writing.flush()
            self.staging.commit()
        if self.purges.waits:
            self.purges.run()

    def _want(self, name: str) -> None:
        for told in self.missing:
            told(name)

    def forget(self) -> None:
        """Go back to what is durable, after a commit that failed."""
        self.documents.forget()
        self.order.forget()
        self.later.forget()
        self.writing.drop_pending()
        self.texts.forget()
        self.rooms.forget()
        self.updates.forget()
        self.quotas.forget()
        self.usage.forget()
        self.events.drop()
        self.seals.forget()

    def forget_room(self, room_id: RoomId) -> None:
        """Let go of a room whose removal begins; nothing of it may wait to be written."""
        self.here.drop(room_id)
        self.documents.forget_room(room_id)
        self.texts.forget()
        self.rooms.changed(room_id)
        self.intake.gathering.drop(room_id)
        self.ephemeral.settle(room_id)
        self.updates.forget()
        self.shards.forget(room_id)
        self.order.forget()
        self.quotas.forget()
        self.usage.drop(room_id)
