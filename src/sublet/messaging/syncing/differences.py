"""What a room lacks here beside what peers hold, asked of the engine's parts on its thread.

Rules: what is here exactly as a member says is not asked for. Weak: who has left a room says nothing of it, so its
config and its newest shard are asked for each time.
"""

from __future__ import annotations

from typing import Final, Protocol

from sublet.messaging.accepting.arrival import ArrivalReport
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.intake.intake import Intake
from sublet.messaging.opening.shards import TimelineShards
from sublet.messaging.passing.ephemeral import Ephemeral
from sublet.messaging.ports.store import Store
from sublet.messaging.quotas.quotas import Quotas
from sublet.messaging.reconciling.roots import Roots
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.schema.schema import Schema
from sublet.protocol.ezagent.bundle import Bundle
from sublet.protocol.ezagent.ids import RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.shards import month as month_of_shard
from sublet.protocol.ezagent.yjs.vectors import closed

MAX_MONTHS_AHEAD: Final = 16
"""Months to come that are asked for at once."""


class SyncParts(Protocol):
    """The parts of the engine for asking peers."""

    @property
    def ephemeral(self) -> Ephemeral: ...

    @property
    def intake(self) -> Intake: ...

    @property
    def keyring(self) -> Keyring: ...

    @property
    def quotas(self) -> Quotas: ...

    @property
    def rooms(self) -> RoomStates: ...

    @property
    def roots(self) -> Roots: ...

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
    """Return the documents of a room that its extensions keep."""
    enabled = engine.rooms.state(room_id).enabled_extensions
    return [doc_id("ext", room_id=room_id, ext_id=name) for name in engine.schema.own_documents(enabled)]


def newest_shard(engine: SyncParts, room_id: RoomId) -> str | None:
    """Return the newest shard of a room's timeline that is here, of no month to come; None where there is none."""
    this = engine.shards.current_month()
    newest = next((name for name in reversed(engine.shards.names(room_id)) if month_of_shard(name) <= this), None)
    return doc_id("index", room_id=room_id, shard_id=newest) if newest is not None else None


def older_shards(engine: SyncParts, room_id: RoomId) -> set[str]:
    """Return the shards of a room that are here, but for the newest one."""
    names = {doc_id("index", room_id=room_id, shard_id=name) for name in engine.shards.names(room_id)}
    return names - {newest_shard(engine, room_id)}


def months_ahead(engine: SyncParts, room_id: RoomId) -> list[str]:
    """Return the months to come of which something is here, as clocks that differ make them."""
    this = engine.shards.current_month()
    months = {month_of_shard(shard) for shard in engine.shards.names(room_id)}
    return sorted(month for month in months if month > this)[:MAX_MONTHS_AHEAD]


def is_empty(engine: SyncParts, name: str) -> bool:
    """Tell whether nothing of a document is here, neither entries nor what tells of a fork."""
    row = engine.store.find_document(name)
    return row is None or not (engine.store.has_entries(row.number) or engine.store.trust.forks(row.number))


def take(engine: SyncParts, room_id: RoomId | None, bundle: Bundle) -> ArrivalReport:
    """Have an answer of a member taken in, and return what came of it."""
    return engine.intake.take_bundle(room_id, bundle)
