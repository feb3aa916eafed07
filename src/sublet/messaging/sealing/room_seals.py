"""Drives the keys of all sealed rooms: tells the core who is in a room and what was said, and does what it asks for.

Statements about keys are elements of a room's document ``ext/sealing``, which are kept, told and reconciled like any
other, and are not sealed themselves. One of our members of a room speaks for this daemon there, with its identity key
as its device. Keys are in memory alone: after a start they are opened again from the statements.

Rules: a statement counts if the device that signed it is that of the member whose element it stands in, so nobody says
anything under keys that it makes up. What comes is gathered, and taken when somebody asks for the room's keys, or when
it is this room's turn. What the core asks to be said is written before its state is taken, so that nothing is ever
sealed under a key that nobody was told of. Weak: whoever may not write in a room hands no keys on, and lacks one
without asking. What a member said under an identity key that was replaced counts until the next start alone. No key is
ever forgotten, and none of a device is renewed: whoever gets hold of an identity key opens every epoch that it had.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import structlog
from nacl.signing import VerifyKey

from sublet.messaging.events.events import Events
from sublet.messaging.identities.keyring import Keyring, LocalEntity
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.ports.store import Store
from sublet.messaging.reading.reading import Reading
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.writing.writing import Writing
from sublet.protocol.encoding import b64
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.envelope import unpack, verify
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.room.state import Role
from sublet.protocol.ezagent.sealing.core import step
from sublet.protocol.ezagent.sealing.events import (
    Event,
    Output,
    RosterChanged,
    Say,
    StatementsCame,
    Tell,
    TimePassed,
    Wake,
)
from sublet.protocol.ezagent.sealing.levels import Encryption, encryption_of
from sublet.protocol.ezagent.sealing.state import Member, OwnDevice, RoomKeys, reading_key, writing_key
from sublet.protocol.ezagent.sealing.statements import (
    MAX_STATEMENT_BYTES,
    KeyStatement,
    parse_statement,
)
from sublet.protocol.ezagent.sealing.wire import KEY_BYTES, DeviceId, device_id, short_hash

log = structlog.get_logger(__name__)

SEALING: Final = "sealing"
STATEMENT_ID, BY, STATEMENT = "statement_id", "by", "statement"
"""Fields of an element of the document."""
KEY_EVENT: Final = "room.key.{}"
MAX_LOOKS: Final = 8
"""How often in a row one room is looked at, since it has something to do at once."""
_REMOVAL: Final = b"sublet/removal"
_DEVICE: Final = b"device"
"""Tells removals of devices from those of members."""


def statements_doc(room_id: RoomId) -> str:
    """Return the document in which a room's members say what they say of its keys."""
    return doc_id("ext", room_id=room_id, ext_id=SEALING)


class RoomSeals:
    """The keys of sealed rooms. Used on the engine's thread.

    Args:
        store: whether a document is here.
        rooms: who is in a room.
        here: which rooms are here.
        keyring: whose key is whose.
        documents: opens the document of statements.
        reading: reads it.
        writing: writes it.
        events: told of members that withhold keys.
        now_ms: the clock, Unix milliseconds.
    """

    def __init__(
        self,
        store: Store,
        rooms: RoomStates,
        here: RoomsHere,
        keyring: Keyring,
        documents: OpenDocuments,
        reading: Reading,
        writing: Writing,
        events: Events,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._rooms = rooms
        self._here = here
        self._keyring = keyring
        self._documents = documents
        self._reading = reading
        self._writing = writing
        self._events = events
        self._now_ms = now_ms
        self._states: dict[RoomId, RoomKeys] = {}
        self._owners: dict[RoomId, dict[DeviceId, EntityId]] = {}
        self._devices: dict[RoomId, dict[DeviceId, bytes]] = {}
        """Keys of those who are in a room, or were."""
        self._wakes: dict[RoomId, int] = {}
        self._replaced: dict[RoomId, frozenset[DeviceId]] = {}
        """Devices of members that have another key now."""
        self._gone: dict[RoomId, frozenset[DeviceId]] = {}
        """Devices that members have removed."""
        self._changed: dict[RoomId, bool] = {}
        """Rooms whose members may be others than before, and whether we have changed that."""
        self._came: dict[RoomId, list[KeyStatement]] = {}
        """Statements that were not taken yet."""
        self._moved: set[RoomId] = set()
        """Rooms of which something may be sealed otherwise than before."""
        keyring.learned.append(self._learned)
        here.let_go.append(self._let_go)

    def is_sealed(self, room_id: RoomId) -> bool:
        """Tell whether only members read what is said in a room."""
        value = self._rooms.state(room_id).fields.get(("encryption",))
        return encryption_of(value) is Encryption.MEMBERS

    def writing_key(self, room_id: RoomId) -> tuple[bytes, bytes] | None:
        """Return the id and the key of the epoch to seal under; None while nothing may be sealed."""
        self.settle()
        state = self._state(room_id)
        return writing_key(state) if state is not None else None

    def last_key(self, room_id: RoomId) -> tuple[bytes, bytes] | None:
        """Return the last epoch whose key is here, whoever has it: for what those who are removed hear of that."""
        state = self._state(room_id)
        held = [state.epochs[id].name for id in state.keys] if state is not None else []
        if state is None or not held:
            return None
        last = max(held, key=lambda name: (name.number, name.id))
        return last.id, state.keys[last.id]

    def reading_key(self, room_id: RoomId, epoch: bytes) -> bytes | None:
        """Return the key of an epoch; None where it is not here."""
        state = self._state(room_id)
        return reading_key(state, epoch) if state is not None else None

    def device(self, room_id: RoomId) -> OwnDevice | None:
        """Return our device that speaks for this daemon in a room; None where none of ours is in it."""
        state = self._state(room_id)
        return state.own if state is not None else None

    def verify_key(self, room_id: RoomId, device: DeviceId) -> bytes | None:
        """Return the key that a device of a member of a room signs with; None where it is none."""
        self.settle()
        owner = self._owners.get(room_id, {}).get(device) if self._state(room_id) is not None else None
        devices = self._keyring.devices(owner) if owner is not None else None
        found = devices.find(device) if devices is not None else None
        return found.verify_key if found is not None else None

    def known_key(self, room_id: RoomId, device: DeviceId) -> bytes | None:
        """Return the key that a device of somebody signs with who is in a room, or was; None where it is none."""
        self.settle()
        return self._devices.get(room_id, {}).get(device) if self._state(room_id) is not None else None

    def is_removed(self, room_id: RoomId, device: DeviceId) -> bool:
        """Tell whether a device was taken out by all of whom it was one who are members of a room."""
        self.settle()
        return device in self._gone.get(room_id, frozenset())

    def is_of_removed(self, raw: bytes) -> bool:
        """Tell whether an envelope that was published now is signed by a device that was removed, and by no other."""
        with suppress(Refused):
            envelope = unpack(raw)
            if self._keyring.has_several(envelope.signer):
                try:
                    verify(envelope, self._keyring.speaking(envelope.signer) or ())
                except Refused:
                    return True
        return False

    def changed(self, room_id: RoomId, *, local: bool) -> None:
        """Note that a room's config is another."""
        self._moved.add(room_id)
        self._changed[room_id] = self._changed.get(room_id, False) or local

    def devices_changed(self, entity: EntityId) -> None:
        """Note that we have added or removed a device of one of ours, so that it is our turn in all its rooms."""
        for state in self._here.of(entity):
            self.changed(state.room_id, local=True)

    def came(self, room_id: RoomId, fields: dict[str, object]) -> None:
        """Take an element of a room's document of statements, which counts."""
        if room_id in self._states and (statement := self._statement(fields)) is not None:
            self._came.setdefault(room_id, []).append(statement)

    def moved(self) -> set[RoomId]:
        """Return the rooms of which something may be sealed or not otherwise than when this was last asked."""
        self.settle()
        moved, self._moved = self._moved, set()
        return moved

    def settle(self) -> None:
        """Tell the core what was said, and who may read now, of each room where that has changed."""
        for room_id in list(self._came):
            self._take(room_id)
        changed, self._changed = self._changed, {}
        for room_id, local in changed.items():
            state = self._states.get(room_id)
            if room_id not in self._here.ids:
                continue
            if state is not None and self._speaker(room_id, state.own.id) is None:
                self._drop(room_id)  # another of ours speaks from now on, or none
            if room_id in self._states:
                self._step(room_id, self._roster(room_id, by_us=local))
            elif self.is_sealed(room_id):
                self._state(room_id, by_us=local)

    def wait_seconds(self) -> float | None:
        """Return after how many seconds ``turn`` has something to do; None where nothing waits."""
        if self._changed or self._came:
            return 0.0
        if not self._wakes:
            return None
        return max(0.0, (min(self._wakes.values()) - self._now_ms()) / 1_000)

    def turn(self) -> bool:
        """Do what is due, and tell whether anything was said, which the next commit makes durable."""
        self.settle()
        now, said = self._now_ms(), False
        for room_id in [room_id for room_id, at in self._wakes.items() if at <= now]:
            for _ in range(MAX_LOOKS):
                if self._wakes.get(room_id, now + 1) > now:
                    break
                del self._wakes[room_id]
                said |= self.is_sealed(room_id) and self._look(room_id)
        return said

    def forget(self) -> None:
        """Go back to what is durable, after a commit that failed."""
        self._moved.update(self._states)
        self._came.clear()
        self._states.clear()
        self._owners.clear()
        self._devices.clear()
        self._wakes.clear()
        self._changed.clear()

    def _look(self, room_id: RoomId) -> bool:
        """Let the core look again at a room; tell whether it had anything said."""
        state = self._states.get(room_id)
        if state is None:
            return False
        after, outputs = step(state, TimePassed(os.urandom(KEY_BYTES)), self._now_ms())
        said = [output.statement for output in outputs if isinstance(output, Say)]
        entity = self._owners[room_id].get(state.own.id)
        try:
            for statement in said:
                self._say(room_id, entity, statement)
        except SubletError as error:
            log.info("may not speak of a room's keys", room=room_id, reason=error.message)
            return False
        self._states[room_id] = after
        self._moved.add(room_id)
        self._do(room_id, outputs)
        return bool(said)

    def _say(self, room_id: RoomId, entity: EntityId | None, statement: KeyStatement) -> None:
        assert entity is not None, "whoever is on no roster has nothing to say"
        fields = {STATEMENT_ID: statement.id.hex(), BY: entity, STATEMENT: b64(statement.encode())}
        self._writing.append(entity, statements_doc(room_id), dict(fields))

    def _take(self, room_id: RoomId) -> None:
        came = self._came.pop(room_id, None)
        if came:
            self._step(room_id, StatementsCame(tuple(came)))

    def _step(self, room_id: RoomId, event: Event) -> None:
        self._moved.add(room_id)
        self._states[room_id], outputs = step(self._states[room_id], event, self._now_ms())
        self._do(room_id, outputs)

    def _do(self, room_id: RoomId, outputs: tuple[Output, ...]) -> None:
        for output in outputs:
            if isinstance(output, Wake):
                self._wakes[room_id] = output.at_ms
            elif isinstance(output, Tell):
                by = self._owners.get(room_id, {}).get(output.device, "")
                self._events.tell(KEY_EVENT.format(output.complaint), room_id, {"room_id": room_id, "by": by})

    def _state(self, room_id: RoomId, *, by_us: bool = False) -> RoomKeys | None:
        """Return the state of a room's keys, read from the statements where it is not in memory; None without ours."""
        self._take(room_id)
        found = self._states.get(room_id)
        if found is not None or room_id not in self._here.ids:
            return found
        local = self._speaker(room_id)
        if local is None:
            return None
        own = OwnDevice(local.key, (local.key.to_curve25519_private_key(),))
        self._states[room_id] = RoomKeys(room_id, own)
        self._step(room_id, StatementsCame(tuple(self._statements(room_id))))
        self._step(room_id, self._roster(room_id, by_us=by_us))
        return self._states[room_id]

    def _speaker(self, room_id: RoomId, device: DeviceId | None = None) -> LocalEntity | None:
        """Return the first of ours in a room, or the one with a device; of none that is in it, the one that was."""
        state = self._rooms.state(room_id)
        ours = [self._keyring.local[entity] for entity in sorted(self._keyring.local)]
        of_room = [one for one in ours if state.role(one.record.entity_id) is not None] or [
            one for one in ours if one.record.entity_id in state.entities
        ]
        if device is None:
            return of_room[0] if of_room else None
        return next((one for one in of_room if one.device == device), None)

    def _roster(self, room_id: RoomId, *, by_us: bool) -> RosterChanged:
        """Return who may read a room now: a member whose key is not known yet gets its keys once it is."""
        roster: dict[DeviceId, Member] = {}
        before = self._owners.get(room_id, {})
        owners: dict[DeviceId, EntityId] = {}
        gone: set[DeviceId] = set()
        members_now = self._rooms.state(room_id).members()
        for entity in self._rooms.state(room_id).entities:
            devices = self._keyring.devices(entity)
            for device in devices.devices if devices is not None and entity in members_now else ():
                roster[device.id] = Member(entity, device.seal_key)
                owners[device.id] = entity
            gone |= devices.removed if devices is not None else set()
        self._owners[room_id] = owners
        self._gone[room_id] = frozenset(gone - roster.keys())
        keys = [key for entity in self._rooms.state(room_id).entities for key in self._keyring.keys(entity) or ()]
        self._devices[room_id] = {device_id(bytes(key)): bytes(key) for key in keys}
        members = {member.entity for member in roster.values()}
        replaced = {device for device, entity in before.items() if device not in owners and entity in members} - gone
        self._replaced[room_id] = self._replaced.get(room_id, frozenset()) | replaced
        removals = (
            {short_hash(_REMOVAL, _DEVICE, device) for device in gone}
            | self._replaced[room_id]
            | {
                short_hash(_REMOVAL, said.id[0].to_bytes(8, "big"), said.id[1].to_bytes(4, "big"))
                for said in self._rooms.statements(room_id)
                if said.about_member() and said.role is Role.LEFT
            }
        )
        return RosterChanged(roster, removals=frozenset(removals), by_us=by_us)

    def _statements(self, room_id: RoomId) -> Iterator[KeyStatement]:
        name = statements_doc(room_id)
        if self._store.find_document(name) is None:
            return
        for fields in self._reading.elements(self._documents.open(name)):
            statement = self._statement(fields)
            if statement is not None:
                yield statement

    def _statement(self, fields: dict[str, object]) -> KeyStatement | None:
        """Return the statement in an element, which its author's own device has signed; None where it holds none."""
        statement, by = _statement(fields), fields.get(BY)
        keys = self._keyring.keys(by) if isinstance(by, str) else None
        if statement is None or keys is None or VerifyKey(statement.signer_key) not in keys:
            return None
        return statement

    def _learned(self, entity: EntityId) -> None:
        """Look again at the rooms of somebody whose key was not known, or is another."""
        for room_id in self._states:
            if entity in self._rooms.state(room_id).entities:
                self.changed(room_id, local=False)

    def _let_go(self, room_id: RoomId) -> None:
        self._drop(room_id)
        self._changed.pop(room_id, None)
        self._moved.add(room_id)

    def _drop(self, room_id: RoomId) -> None:
        for kept in (self._states, self._owners, self._devices, self._wakes, self._replaced, self._gone, self._came):
            kept.pop(room_id, None)


def _statement(fields: dict[str, object]) -> KeyStatement | None:
    """Return the statement in an element; None where it holds none that proves itself."""
    text = fields.get(STATEMENT)
    if not isinstance(text, str) or len(text) > 2 * MAX_STATEMENT_BYTES:
        return None
    try:
        return parse_statement(base64.b64decode(text, validate=True))
    except (Refused, binascii.Error, ValueError):
        return None
