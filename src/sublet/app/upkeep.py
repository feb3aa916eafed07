"""What keeps a daemon in order while it runs: files are read anew as they change, and what is old is forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sublet.app.agents import Agents
from sublet.app.governance import Governance
from sublet.app.ground import Ground
from sublet.app.lending import Lending
from sublet.daemon.governing.agent_rules import rules_of
from sublet.daemon.reloading.reloader import Reloader
from sublet.daemon.reloading.watching import Watcher
from sublet.daemon.rooms.start import Rooms
from sublet.daemon.storage.prune_stores import (
    EndedAssignments,
    EndedDelegations,
    KeptResults,
    PruneStore,
    Shadows,
)
from sublet.daemon.storage.pruning import Pruning
from sublet.daemon.supervising.prune_store import KeptSessions
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import EventKind


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Its parts.

    Args:
        reloader: puts files in force.
        watcher: tells it that they have changed; None where that is switched off.
        pruning: forgets.
    """

    reloader: Reloader
    watcher: Watcher | None
    pruning: Pruning


def make_upkeep(ground: Ground, governance: Governance, rooms: Rooms, lending: Lending, agents: Agents) -> Upkeep:
    """Make what keeps the other areas in order."""
    config, journal, policy = ground.config, ground.journal, governance.policy

    def in_force() -> None:
        agents.slots.capacity = policy.limits.slots
        rooms.messaging.agents_changed()

    async def tell(kind: EventKind, data: Mapping[str, JsonValue]) -> None:
        await journal.append_event(kind, None, dict(data))

    reloader = Reloader(
        agents.source,
        agents.offering,
        policy,
        governance.policy_file,
        rules_of,
        agents.modules.registry,
        agents.gateways,
        in_force,
        tell,
        lending.hook.note,
    )
    supervising = agents.supervising
    stores: list[PruneStore] = [
        EndedDelegations(journal),
        EndedAssignments(journal),
        KeptResults(lending.trees.changes),
        Shadows(journal, lending.auditor, lending.locks),
        KeptSessions(supervising.sessions, supervising.store),
        rooms.over,
    ]
    return Upkeep(
        reloader=reloader,
        watcher=Watcher(reloader) if config.watch_files else None,
        pruning=Pruning(journal, stores, lambda: config.retention),
    )
