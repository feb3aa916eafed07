"""How much is kept of what does not count: of strangers, of members without the power, of those who were removed.

All of it may come to count later, when a grant arrives that its sender knew, so some of it is kept. What is refused
here is asked for again once its signer is a member, or once a member's update builds on it: that is taken whatever its
size, since without it nobody here would see what the member wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from sublet.messaging.documents.document import Document
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.opening.shards import TimelineShards
from sublet.messaging.ports.store import Store
from sublet.messaging.quotas.usage import DiskUsage
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.rooms.states import RoomStates
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.envelope import Envelope
from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import DocumentPlace
from sublet.protocol.ezagent.room.state import RoomState
from sublet.protocol.ezagent.yjs.update import ItemId, Update

MAX_STRANGER_UPDATES: Final = 256
MAX_STRANGER_BYTES: Final = 256 << 10
"""Of one signer in one room."""
MAX_STRANGERS_BYTES: Final = 4 << 20
"""Of all signers in one room."""
MAX_UNFOUNDED_BYTES: Final = 32 << 20
"""Of a room's config before anything shows who has founded it."""
MAX_DOCUMENTS_OF_DAEMON: Final = 16_384
"""Of a room, into which the entities of one daemon write: the others begin theirs all the same."""
MAX_TOMBSTONES_OF_DAEMON: Final = 4_096
"""Of a room, which the entities of one daemon begin: 512 bytes each from one client, and all of it at most 3 MiB."""
MAX_HELD_BYTES_IN_ALL: Final = 32 << 20
"""Of updates that wait for others, in all open documents."""
MAX_STATEMENTS_OF_MEMBERS: Final = 1_024
"""Of a room's config, by the entities of one daemon that are no admins: each takes 3 KiB, and time to decide."""
MAX_STATEMENTS_OF_ADMINS: Final = 65_536
"""Of a room's config, by the entities of one daemon."""
MAX_PASSED_OVER: Final = 4_096
"""Clients of one document whose refused updates are not asked for again; those of more are, each time."""


class Quotas:
    """Bounds what is kept without counting.

    Args:
        store: where what was used is kept.
        usage: how much is kept of each daemon.
        rooms: who is in which room.
        here: which rooms are here.
        keyring: which entities are ours.
        documents: how much waits in open documents.
        shards: where a timeline may go on.
    """

    def __init__(
        self,
        store: Store,
        usage: DiskUsage,
        rooms: RoomStates,
        here: RoomsHere,
        keyring: Keyring,
        documents: OpenDocuments,
        shards: TimelineShards,
    ) -> None:
        self._store = store
        self._usage = usage
        self._rooms = rooms
        self._here = here
        self._keyring = keyring
        self._opened = documents
        self._shards = shards
        self._used: dict[RoomId, dict[EntityId, tuple[int, int]]] = {}
        self._changed: set[tuple[RoomId, EntityId]] = set()
        self._documents: dict[tuple[RoomId, str], int] = {}
        self._tombstones: dict[tuple[RoomId, str], int] = {}
        self._counted: set[tuple[RoomId, str]] = set()
        """Of which daemons that was counted, which takes time that grows with the room."""
        self._statements: dict[RoomId, Counter[str]] = {}
        """Clocks that each daemon's entities have used in a room's config."""
        self._passed_over: dict[str, dict[int, int]] = {}
        self._needed: dict[str, tuple[tuple[int, RoomState], dict[int, int]]] = {}

    def passed_over(self, doc_id: str) -> dict[int, int]:
        """Return up to which clocks of a document's clients updates were refused here, and are not wanted again."""
        return self._passed_over.get(doc_id, {})

    def has_passed_over(self, room_id: RoomId) -> bool:
        """Tell whether anything of a room was refused for good, which others may keep."""
        of_room = f"ezagent/{room_id}/"
        return any(passed and name.startswith(of_room) for name, passed in self._passed_over.items())

    def admit(self, document: Document, signer: EntityId, update: Update, size: int) -> None:
        """Let a verified update from the wire be kept, or not.

        Args:
            document: which it changes.
            signer: who has signed it.
            update: what it does.
            size: what it takes, bytes, with the contents that it names.

        Raises:
            Refused: ``QUOTA``.
        """
        room_id = document.place.room_id
        if room_id is None or self._counts(room_id, signer, document, update):
            self._has_room(document, signer, update)
            if room_id is not None and document.place.kind == "config":
                self._state_has_room(room_id, document, signer, update)
            return
        if not update.items:
            raise Refused(Refusal.QUOTA, "a stranger deletes nothing, whatever is granted later")
        if self._is_needed(document, update):
            return
        room = self._of(room_id)
        updates, used = room.get(signer, (0, 0))
        if document.place.kind == "config" and self._rooms.state(room_id).creator is None:
            if used + size > MAX_UNFOUNDED_BYTES:
                raise Refused(Refusal.QUOTA, "a config that is too long before it shows who founded the room")
        elif (
            updates >= MAX_STRANGER_UPDATES
            or used + size > MAX_STRANGER_BYTES
            or sum(bytes_used for _, bytes_used in room.values()) + size > MAX_STRANGERS_BYTES
        ):
            self.pass_over(document, update)
            raise Refused(Refusal.QUOTA, "more than is kept of strangers")
        room[signer] = updates + 1, used + size
        self._changed.add((room_id, signer))

    def may_wait(self, document: Document, envelope: Envelope, update: Update) -> None:
        """Let an update be held until what it needs is here, or not.

        Raises:
            Refused: ``QUOTA``: its signer is no member, or too much waits.
        """
        room_id = document.place.room_id
        founded = room_id is not None and self._rooms.state(room_id).creator is not None
        counts = room_id is None or not founded or self._counts(room_id, envelope.signer, document, update)
        if counts:
            self._has_room(document, envelope.signer, update)
        elif not self._is_needed(document, update):
            self.pass_over(document, update)
            raise Refused(Refusal.QUOTA, "a stranger's update that waits for others")
        if self._opened.held_bytes() + len(envelope.payload) > MAX_HELD_BYTES_IN_ALL:
            raise Refused(Refusal.QUOTA, "too much waits for what is missing")
        passed = self._passed_over.get(document.row.doc_id, {})
        for client, clock in wanted_by(update):
            if clock < passed.get(client, 0):
                del passed[client]

    def may_begin(self, place: DocumentPlace, signer: EntityId) -> None:
        """Let an update begin a document of a room, or not.

        Raises:
            Refused: ``QUOTA``: strangers begin none, nobody begins shards that others don't look for, and one daemon's
                entities begin no more when they have written into ``MAX_DOCUMENTS_OF_DAEMON``.
        """
        room_id = place.room_id
        if room_id is None or place.kind == "config":
            return
        if not self._here.is_member(signer, room_id) and signer not in self._rooms.state(room_id).entities:
            raise Refused(Refusal.QUOTA, "a document that a stranger begins")
        if place.shard_id is not None and not self._shards.may_begin(room_id, place.shard_id):
            raise Refused(Refusal.QUOTA, "a part of the timeline that nobody would look for")
        key = room_id, self._keyring.home(signer)
        if place.kind == "purge":
            tombstones = self.tombstones(*key)
            if tombstones >= MAX_TOMBSTONES_OF_DAEMON:
                raise Refused(Refusal.QUOTA, "more tombstones than one daemon may begin in a room")
            self._tombstones[key] = tombstones + 1
        begun = self._documents.get(key)
        if begun is None and self._store.tree.is_built:
            begun = self._store.tree.root(room_id).count  # at least as many, and read at once
        if begun is None or (begun >= MAX_DOCUMENTS_OF_DAEMON and key not in self._counted):
            begun = self._store.trust.documents_of(room_id, lambda writer: self._keyring.home(writer) == key[1])
            self._counted.add(key)
        if begun >= MAX_DOCUMENTS_OF_DAEMON:
            raise Refused(Refusal.QUOTA, "more documents than one daemon may begin in a room")
        self._documents[key] = begun + 1

    def tombstones(self, room_id: RoomId, home: str) -> int:
        """Return how many tombstones of a room the entities of a daemon have begun."""
        begun = self._tombstones.get((room_id, home))
        if begun is None:
            counts = self._store.purges.begun(room_id)
            begun = sum(count for signer, count in counts.items() if self._keyring.home(signer) == home)
            self._tombstones[room_id, home] = begun
        return begun

    def save(self) -> None:
        """Keep what has been used, inside a transaction."""
        self._usage.save()
        for room_id, signer in self._changed:
            updates, used = self._used[room_id].get(signer, (0, 0))
            self._store.trust.put_stranger(room_id, signer, updates, used)
        self._changed.clear()

    def settle(self, room_id: RoomId) -> None:
        """Charge those no longer who are members now; inside a transaction."""
        state = self._rooms.state(room_id)
        room = self._of(room_id)
        for name in [name for name in self._passed_over if name.startswith(f"ezagent/{room_id}/")]:
            del self._passed_over[name]
            self._needed.pop(name, None)
        for signer in [signer for signer in room if state.role(signer) is not None]:
            del room[signer]
            self._changed.add((room_id, signer))
        self.save()

    def forget(self) -> None:
        """Go back to what is durable."""
        self._used.clear()
        self._changed.clear()
        self._documents.clear()
        self._tombstones.clear()
        self._counted.clear()
        self._statements.clear()
        self._passed_over.clear()
        self._needed.clear()

    def may_write(self, place: DocumentPlace, signer: EntityId) -> None:
        """Let one of ours write, or not: what all others would refuse is not begun; who is a member may always change.

        Raises:
            SubletError: ``CONFLICT``.
        """
        usage, room_id = self._usage, place.room_id
        if room_id is not None and place.kind != "config" and usage.in_room(room_id, signer) >= usage.limit:
            raise SubletError(
                LocalCode.CONFLICT,
                f"this daemon has written into the room what is kept of one, {usage.limit >> 20} MiB",
                "Go on in a new room, or raise messaging.megabytes_of_daemon in config.json here and at the others.",
            )

    def _has_room(self, document: Document, signer: EntityId, update: Update) -> None:
        """Let a member's update be kept, or not.

        Raises:
            Refused: ``QUOTA``: its daemon's entities have written as much as is kept of one.
        """
        usage = self._usage
        if not usage.is_full(signer, config=document.place.kind == "config") or self._is_ours(signer):
            return
        if not self._is_needed(document, update):
            self.pass_over(document, update)
            raise Refused(Refusal.QUOTA, "more than is kept of one daemon")

    def _state_has_room(self, room_id: RoomId, document: Document, signer: EntityId, update: Update) -> None:
        """Let a member's statements be kept, or not.

        Raises:
            Refused: ``QUOTA``: its daemon's entities have written as many as one may.
        """
        used = self._statements.get(room_id)
        if used is None:
            used = self._statements[room_id] = Counter()
            for clock, writer in document.clients.values():
                used[self._keyring.home(writer)] += clock
        state, home = self._rooms.state(room_id), self._keyring.home(signer)
        is_admin = state.power(signer) >= state.level("admin").value
        most = MAX_STATEMENTS_OF_ADMINS if is_admin else MAX_STATEMENTS_OF_MEMBERS
        size = update.end - update.start if update.items else 0
        if used[home] + size > most and not self._is_ours(signer) and not self._is_needed(document, update):
            self.pass_over(document, update)
            raise Refused(Refusal.QUOTA, "more statements than one daemon may make in a room's config")
        used[home] += size

    def _is_ours(self, signer: EntityId) -> bool:
        home = self._keyring.home
        return any(home(entity) == home(signer) for entity in self._keyring.local)

    def _is_needed(self, document: Document, update: Update) -> bool:
        """Tell whether a member's update waits for this one, or for one that does."""
        room_id = document.place.room_id
        if room_id is None or not update.items or not len(document.held):
            return False
        now = document.held.changes, self._rooms.state(room_id)
        known = self._needed.get(document.row.doc_id)
        if known is None or known[0] != now:
            known = self._needed[document.row.doc_id] = now, self._needed_in(room_id, document)
        return update.start < known[1].get(update.client, 0)

    def _needed_in(self, room_id: RoomId, document: Document) -> dict[int, int]:
        """Return up to which clocks of which clients members' updates wait for."""
        needed: dict[int, int] = {}
        todo: list[Update] = []
        others: dict[int, list[Update]] = {}
        for held in document.held:
            counts = self._counts(room_id, held.envelope.signer, document, held.update)
            (todo if counts else others.setdefault(held.update.client, [])).append(held.update)
        for updates in others.values():
            updates.sort(key=_start, reverse=True)
        # Each is looked at once, however long the chain is in which they wait for each other.
        while todo:
            for client, clock in wanted_by(todo.pop()):
                if clock >= needed.get(client, 0):
                    needed[client] = clock + 1
                    updates = others.get(client, [])
                    while updates and updates[-1].start <= clock:
                        todo.append(updates.pop())
        return needed

    def pass_over(self, document: Document, update: Update) -> None:
        """Note that an update was refused for good, so that it is not asked for again."""
        if not update.items:
            return
        passed = self._passed_over.setdefault(document.row.doc_id, {})
        if update.client in passed or len(passed) < MAX_PASSED_OVER:
            passed[update.client] = max(update.end, passed.get(update.client, 0))

    def _of(self, room_id: RoomId) -> dict[EntityId, tuple[int, int]]:
        found = self._used.get(room_id)
        if found is None:
            found = self._used[room_id] = self._store.trust.strangers(room_id)
        return found

    def _counts(self, room_id: RoomId, signer: EntityId, document: Document, update: Update) -> bool:
        return self._rooms.counts(room_id, signer, document.room_part, (update.client, update.start))


def _start(update: Update) -> int:
    return update.start


def wanted_by(update: Update) -> Iterator[ItemId]:
    """Yield the items of others, or of before, that an update needs to be here."""
    if update.items and update.start:
        yield update.client, update.start - 1
    for item in update.items:
        for other in (item.origin, item.right, item.parent):
            if isinstance(other, tuple) and not (other[0] == update.client and other[1] >= update.start):
                yield other
    for cut in update.deletions:
        yield cut.client, cut.clock + cut.length - 1
