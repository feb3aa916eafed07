"""What keeps a daemon in order while it runs: files are read anew as they change, and what is old is forgotten."""

from __future__ import annotations

from dataclasses import dataclass

from sublet.app.agents import Agents
from sublet.app.governance import Governance
from sublet.app.ground import Ground
from sublet.app.lending import Lending
from sublet.app.rooms import Rooms
from sublet.app.stores import FACE_STORES
from sublet.daemon.governing.agent_rules import rules_of
from sublet.daemon.reloading.reloader import Reloader
from sublet.daemon.reloading.watching import Watcher
from sublet.daemon.storage.prune_stores import (
    EndedAssignments,
    EndedDelegations,
    KeptResults,
    PruneStore,
    Shadows,
)
from sublet.daemon.storage.pruning import Pruning
from sublet.daemon.storage.soundness import Soundness
from sublet.daemon.supervising.prune_store import KeptSessions


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Its parts.

    Args:
        reloader: puts files in force.
        watcher: tells it that they have changed; None where that is switched off.
        pruning: forgets.
        soundness: looks whether databases are sound.
    """

    reloader: Reloader
    watcher: Watcher | None
    pruning: Pruning
    soundness: Soundness


def make_upkeep(ground: Ground, governance: Governance, rooms: Rooms, lending: Lending, agents: Agents) -> Upkeep:
    """Make what keeps the other areas in order."""
    config, journal = ground.config, ground.journal

    reloader = Reloader(
        agents.source,
        agents.offering,
        governance.policy,
        governance.policy_file,
        rules_of,
        agents.capabilities.registry,
        agents.gateways,
        rooms.messaging.agents_changed,
        journal.events.tell,
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
        pruning=Pruning(journal, stores, config.retention),
        soundness=Soundness([ground.store.path, *(ground.state_dir / name for name in FACE_STORES)]),
    )
