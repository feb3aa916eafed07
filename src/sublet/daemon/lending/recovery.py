"""What the last process has lent: what it held is released, and what can't be gone on with ends (DESIGN 4.10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sublet.daemon.lending.keeper import DelegationKeeper
from sublet.daemon.lending.staged_tree import Trees
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import DelegationRecord
from sublet.daemon.storage.resource_log import NOTHING, PANEL, ResourceChange
from sublet.daemon.tasks.background import in_background
from sublet.protocol.delegation.events import Failed, Settled, TakenOver
from sublet.protocol.delegation.reasons import interrupted
from sublet.workspace.export import LeaseUsage

KEPT: Final = ("remote_task", PANEL)
"""Peers have to be told of an end still, and panels are gone on with."""


async def release_held(journal: Journal, trees: Trees) -> None:
    """Release what delegations held here.

    Credentials, views and locks lived in the memory of the last process and died with it; what is journalled of them
    goes. What we delegated ourselves is taken over by the delegator once it serves, which takes what it needs anew;
    that peers have to be told of an end stays journalled until they are, and a panel until it is over.
    """
    await trees.reap()
    for held in await journal.resources.open_resources():
        if held.kind not in KEPT:
            await journal.resources.release(held.id)


async def end_interrupted(
    record: DelegationRecord, journal: Journal, trees: Trees, recalled: Callable[[], LeaseUsage]
) -> None:
    """End a delegation that can't be gone on with, as its peer is not known any more, or settle what has ended.

    It ends as what it is, done, expired or interrupted, with the audit of what was done until then.

    Args:
        record: not settled yet.
        journal: where it is written.
        trees: know what it served.
        recalled: returns what the lease did, as far as that is remembered.
    """
    keeper = DelegationKeeper(record, journal)
    await keeper.feed(TakenOver())
    if not keeper.over:
        # Where the lease is over by the clock, this is EXPIRE.
        await keeper.feed(Failed(interrupted()))
    news: dict[str, object] = {}
    tree = trees.of(record)
    if record.expires_at is not None and record.snapshots:
        news |= await tree.report(record, await in_background(recalled))
    else:
        await tree.drop()
    await keeper.note(NOTHING, **news)
    await keeper.feed(Settled(told=True), {"condition": None}, held=ResourceChange(gives_back=()))
