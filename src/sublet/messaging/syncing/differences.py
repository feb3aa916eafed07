"""What a room lacks here beside what peers hold, asked of the engine's parts on its thread.

Rules: what is here exactly as a member says is not asked for. Weak: who has left a room says nothing of it, so its
config and its newest shard are asked for each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Protocol

from sublet.messaging.accepting.arrival import ArrivalReport
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.intake.intake import Intake
from sublet.messaging.opening.shards import TimelineShards
from sublet.messaging.passing.ephemeral import Ephemeral
from sublet.messaging.ports.store import Store
from sublet.messaging.quotas.quotas import Quotas
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.schema.schema import Schema
from sublet.messaging.trust.heads import HeadExchange, changing
from sublet.protocol.ezagent.bundle import Bundle, RecordKind
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.shards import month as month_of_shard
from sublet.protocol.ezagent.yjs.vectors import closed

MAX_MONTHS_AHEAD: Final = 16
"""Months to come that are asked for at once."""
MAX_SIGNERS_OF_HEADS: Final = 2
"""Records that are taken with a statement of heads, which one member has signed."""


class SyncParts(Protocol):
    """The parts of the engine for asking peers."""

    @property
    def ephemeral(self) -> Ephemeral: ...

    @property
    def heads(self) -> HeadExchange: ...

    @property
    def intake(self) -> Intake: ...

    @property
    def keyring(self) -> Keyring: ...

    @property
    def quotas(self) -> Quotas: ...

    @property
    def rooms(self) -> RoomStates: ...

    @property
    def schema(self) -> Schema: ...

    @property
    def shards(self) -> TimelineShards: ...

    @property
    def store(self) -> Store: ...


def vector(engine: SyncParts, name: str) -> dict[int, int]:
    """Return our state vector of a document; of a client that forks, or that was more than is kept, we want no more."""
    row = engine.store.find_document(name)
    if row is None:
        return {}
    vector = {client: clock for client, (clock, _) in engine.store.clients(row.number).items()}
    for client, clock in (*engine.quotas.passed_over(name).items(), *engine.intake.gathering.clocks(name).items()):
        vector[client] = max(clock, vector.get(client, 0))
    return vector | {fork.client: closed(fork.clock) for fork in engine.store.trust.forks(row.number)}


def of_extensions(engine: SyncParts, room_id: RoomId) -> list[str]:
    """Return the documents of a room that its extensions keep, those that change among them."""
    enabled = engine.rooms.state(room_id).enabled_extensions
    names = [doc_id("ext", room_id=room_id, ext_id=name) for name in engine.schema.own_documents(enabled)]
    return names + [row.doc_id for row in changing(engine.store, room_id)]


def newest_shard(engine: SyncParts, room_id: RoomId) -> str | None:
    """Return the newest shard of a room's timeline that is here, of no month to come; None where there is none."""
    this = engine.shards.current_month()
    newest = next((name for name in reversed(engine.shards.names(room_id)) if month_of_shard(name) <= this), None)
    return doc_id("index", room_id=room_id, shard_id=newest) if newest is not None else None


def months_told(engine: SyncParts, room_id: RoomId, told: Iterable[str]) -> list[str]:
    """Return the months to come of which something is here, or some member tells, as clocks that differ make them."""
    this = engine.shards.current_month()
    begins = f"ezagent/{room_id}/index/"
    shards = [*engine.shards.names(room_id), *(name.removeprefix(begins) for name in told if name.startswith(begins))]
    return sorted({month_of_shard(shard) for shard in shards if month_of_shard(shard) > this})[:MAX_MONTHS_AHEAD]


def is_empty(engine: SyncParts, name: str) -> bool:
    """Tell whether nothing of a document is here, neither entries nor what tells of a fork."""
    row = engine.store.find_document(name)
    return row is None or not (engine.store.has_entries(row.number) or engine.store.trust.forks(row.number))


def alike(engine: SyncParts, room_id: RoomId, bundle: Bundle) -> dict[str, bool]:
    """Return of which documents a member tells, and whether it has exactly what is here."""
    engine.intake.take_bundle(None, signers_of_heads(bundle))
    for raw in bundle.of(RecordKind.HEADS)[:1]:
        with suppress(Refused):  # which is counted when histories are compared
            return engine.heads.alike(room_id, raw)
    return {}


def all_alike(engine: SyncParts, room_id: RoomId, told: dict[str, bool]) -> set[str]:
    """Return the documents that all members who tell of them have exactly as they are here.

    What extensions keep is told of first, so where nobody tells of it, and it is not here either, nobody has it.
    """
    if told:
        absent = (name for name in of_extensions(engine, room_id) if engine.store.find_document(name) is None)
        told = {name: True for name in absent if name not in told} | told
    return {name for name, same in told.items() if same}


def compare(engine: SyncParts, room_id: RoomId, bundle: Bundle) -> dict[str, set[int]]:
    """Return of which documents and clients a member has another history than we have."""
    engine.intake.take_bundle(None, signers_of_heads(bundle))
    found: dict[str, set[int]] = {}
    for raw in bundle.of(RecordKind.HEADS)[:1]:
        try:
            found |= engine.heads.compare(room_id, raw)
        except Refused as refused:
            engine.intake.counts[refused.refusal] += 1
    return found


def signers_of_heads(bundle: Bundle) -> Bundle:
    """Return the record of the one member who has signed a statement of heads, and nothing else of the answer."""
    return Bundle(tuple((RecordKind.IDENTITY, raw) for raw in bundle.of(RecordKind.IDENTITY)[:MAX_SIGNERS_OF_HEADS]))


def take(engine: SyncParts, room_id: RoomId | None, bundle: Bundle) -> ArrivalReport:
    """Have an answer of a member taken in, and return what came of it."""
    return engine.intake.take_bundle(room_id, bundle)
