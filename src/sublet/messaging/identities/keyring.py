"""Knows whose key is whose: our own entities with their keys, and the proven records of others.

Rules: a record proves itself, so anybody may bring it; nobody brings another one of our own entities; a newer version
takes the place of an older one, but of none whose first device was removed: whoever has that makes newer ones. What an
entity's devices say of each other is joined, from whatever record it comes. In logs the key of every device counts that
an entity has ever had, and of what is heard or asked now those of devices that speak for it still. Weak: beyond
``MAX_RECORDS`` those of strangers are refused, and none is ever given up.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from nacl.signing import SigningKey, VerifyKey

from sublet.messaging.ports.store import Store
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.identity import EntityRecord, parse_record
from sublet.protocol.ezagent.ids import CLIENT_NONCE_BITS, EntityId, client_id, entity_domain
from sublet.protocol.ezagent.sealing.devices import DeviceList, evaluate
from sublet.protocol.ezagent.sealing.wire import DeviceId, device_id
from sublet.protocol.ids import node_id

MAX_RECORDS: Final = 8_192
"""Identity records; beyond that only those of members and of who has sent something are taken."""


@dataclass(frozen=True, slots=True)
class LocalEntity:
    """One of our own: a person, an agent or the daemon.

    ``client`` is its Yjs client id, fresh in every process since ``nonce`` is. ``key`` is the identity key, or
    where the entity is at home elsewhere that of the device which this daemon is.
    """

    record: EntityRecord
    key: SigningKey
    nonce: int
    client: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "client", client_id(self.record.entity_id, self.nonce))

    @property
    def device(self) -> DeviceId:
        """Return the id of the device that this daemon is."""
        return device_id(bytes(self.key.verify_key))

    def with_another_client(self) -> LocalEntity:
        """Return the same entity as another process, which writes under clocks of its own."""
        others = (1 << CLIENT_NONCE_BITS) - 1
        return LocalEntity(self.record, self.key, self.nonce + 1 + secrets.randbelow(others))


class Keyring:
    """Keys by entity.

    Args:
        store: where records were kept.
        local: our own entities.
    """

    def __init__(self, store: Store, local: list[LocalEntity]) -> None:
        self.local: dict[EntityId, LocalEntity] = {}
        self._records: dict[EntityId, EntityRecord] = {}
        self._homes: dict[EntityId, str] = {}
        self._keys: dict[EntityId, tuple[VerifyKey, ...]] = {}
        self._lists: dict[EntityId, DeviceList] = {}
        """Of whom there are several devices, or were."""
        self._speaking: dict[EntityId, tuple[VerifyKey, ...]] = {}
        self.moves = 0
        """How often it became known, or changed, that an entity is at home elsewhere than its domain says."""
        self.learned: list[Callable[[EntityId], None]] = []
        """Told of whom a record is here that was not, or another one."""
        self._proven: set[bytes] = set()
        """Records as they travel, which come again with every answer and are not proven each time."""
        self._renewed: dict[tuple[EntityId, str], int] = {}
        for raw in store.records().values():
            self._put(parse_record(raw))
        for entity in local:
            self.add(entity)

    def key(self, entity: EntityId) -> SigningKey:
        """Return the key of one of our own entities.

        Raises:
            SubletError: ``INVALID_ARGUMENT``: it is none of ours.
        """
        return self._own(entity).key

    def client(self, entity: EntityId, name: str = "") -> int:
        """Return the Yjs client id of one of our own entities in this process, for a document where that has another.

        Raises:
            SubletError: ``INVALID_ARGUMENT``: it is none of ours.
        """
        own = self._own(entity)
        return self._renewed.get((entity, name), own.client)

    def renew(self, name: str) -> None:
        """Write into a document as another process from now on, since what ours have written there was erased."""
        for entity, own in self.local.items():
            self._renewed[entity, name] = own.with_another_client().client

    def begin_anew(self) -> None:
        """Have all of ours write as another process would, since some of what this one wrote may be gone."""
        self.local.update({name: entity.with_another_client() for name, entity in self.local.items()})

    def _own(self, entity: EntityId) -> LocalEntity:
        found = self.local.get(entity)
        if found is None:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT, f"{entity} is none of this daemon's entities", "See sublet whoami."
            )
        return found

    def add(self, entity: LocalEntity) -> None:
        """Take another entity of ours, with what is known of its devices."""
        known = self._records.get(entity.record.entity_id)
        record = entity.record.with_statements(known.statements if known is not None else ())
        own = self.local[record.entity_id] = replace(entity, record=record)
        self._put(record)
        if not self._speaks(own):
            del self.local[record.entity_id]

    def record(self, entity: EntityId) -> EntityRecord | None:
        """Return an entity's record, if it is known."""
        return self._records.get(entity)

    def home(self, entity: EntityId) -> str:
        """Return the node id of the daemon at which an entity is at home: the one whose key vouches for it.

        Of whose record is not here, that is what the domain says: a namespace, which a daemon of its own may have.
        """
        return self._homes.get(entity) or entity_domain(entity)

    def homes(self, entity: EntityId) -> frozenset[str]:
        """Return the node ids of all daemons that are devices of an entity: its home, and those that were added."""
        devices = self._lists.get(entity)
        home = frozenset({self.home(entity)})
        if devices is None:
            return home
        first = device_id(self._records[entity].key)
        more = {node_id(one.verify_key) for one in devices.devices if one.id != first}
        return (home if first not in devices.removed else frozenset()) | more

    def devices(self, entity: EntityId) -> DeviceList | None:
        """Return the devices of an entity; None where it is not known, or nothing can be sealed for it."""
        found, record = self._lists.get(entity), self._records.get(entity)
        if found is not None or record is None:
            return found
        try:
            return evaluate(entity, record.key, ())
        except Refused:
            return None

    def has_several(self, entity: EntityId) -> bool:
        """Tell whether an entity has, or had, more devices than its first one."""
        return entity in self._lists

    def keys(self, entity: EntityId) -> tuple[VerifyKey, ...] | None:
        """Return the keys that sign for an entity in logs, also of removed devices; None where it is unknown."""
        return self._keys.get(entity)

    def speaking(self, entity: EntityId) -> tuple[VerifyKey, ...] | None:
        """Return the keys that sign for an entity now; None where it is not known."""
        return self._speaking.get(entity)

    def learn(self, raw: bytes, wanted: Callable[[EntityId], bool] = lambda _: True) -> EntityRecord | None:
        """Take a record that somebody told us; return it if it is new.

        Args:
            raw: the record.
            wanted: tells whose record is kept even where there are ``MAX_RECORDS``.

        Raises:
            Refused: it does not prove itself, it claims one of our own entities, or there are too many.
        """
        if raw in self._proven:
            return None
        record = parse_record(raw)
        known, own = self._records.get(record.entity_id), self.local.get(record.entity_id)
        if known is not None:
            newer = _newer(known, record)
            record = replace(newer, statements=known.statements).with_statements(record.statements)
            if record == known:
                return None
            if own is not None and newer is not known and own.device == device_id(known.key):
                raise Refused(Refusal.BAD_SIGNATURE, "a record of one of our own entities")
        if known is None and len(self._records) >= MAX_RECORDS and not wanted(record.entity_id):
            raise Refused(Refusal.QUOTA, "too many records of strangers")
        if own is not None:
            self.local[record.entity_id] = replace(own, record=record)
        self._put(record)
        if own is not None and not self._speaks(own):
            self.local.pop(record.entity_id, None)
        return record

    def _speaks(self, own: LocalEntity) -> bool:
        """Tell whether this daemon speaks for one of ours still: it was not removed as a device of it."""
        devices = self._lists.get(own.record.entity_id)
        return devices is None or devices.find(own.device) is not None

    def _put(self, record: EntityRecord) -> None:
        before, home = self._records.get(record.entity_id), record.home
        if home != self.home(record.entity_id) or record.statements != (before.statements if before else ()):
            self.moves += 1
        self._homes[record.entity_id] = home
        if before is not None:
            self._proven.discard(before.encode())
        self._proven.add(record.encode())
        self._records[record.entity_id] = record
        self._keys[record.entity_id] = self._speaking[record.entity_id] = record.verify_keys()
        if record.statements:
            self._put_devices(record)
        for told in self.learned:
            told(record.entity_id)

    def _put_devices(self, record: EntityRecord) -> None:
        """Note whose keys count for an entity whose devices have said something of each other."""
        try:
            found = evaluate(record.entity_id, record.key, record.statements)
        except Refused:
            return  # nothing can be sealed for its identity key, so it has that alone
        self._lists[record.entity_id] = found
        self._keys[record.entity_id] = record.log_keys()


def _newer(known: EntityRecord, other: EntityRecord) -> EntityRecord:
    """Return which of two records of an entity counts, whichever came first, by what both tell of its devices."""
    older, newer = sorted((other, known), key=lambda one: one.version)
    joined = replace(older, statements=known.statements).with_statements(other.statements)
    return older if older.version < newer.version and joined.has_lost_first() else newer
