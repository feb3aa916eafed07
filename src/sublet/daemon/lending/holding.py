"""Holding the directories of a delegation against overlapping leases (DESIGN 4.5)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import anyio

from sublet.daemon.lending.agreement import queued
from sublet.daemon.lending.keeper import DelegationKeeper
from sublet.daemon.lending.lent_access import DelegatorTools
from sublet.daemon.tasks.failures import sole_failure
from sublet.protocol.errors import SubletError
from sublet.workspace.locks import Wants


async def hold(
    held: AsyncExitStack,
    wants: Wants,
    keeper: DelegationKeeper,
    tools: DelegatorTools,
) -> None:
    """Hold directories until ``held`` is closed; while others hold them, the delegation's condition says so.

    Args:
        held: what gives them back.
        wants: real paths, and for what.
        keeper: of the delegation.
        tools: the locks, and the journal.

    Raises:
        SubletError: ``CONFLICT`` where they are not free within the time of the lease, ``UNAVAILABLE``.
    """
    moved = asyncio.Event()
    place = 0

    def on_position(position: int) -> None:
        nonlocal place
        place = position
        moved.set()

    async def tell() -> None:
        while True:
            await moved.wait()
            moved.clear()
            if place:
                await keeper.note(condition=queued(place, tools.locks.in_the_way(keeper.record.id)))

    record = keeper.record
    directory = tools.locks.acquire(wants, owner=record.id, timeout=record.ttl_seconds, on_position=on_position)
    with sole_failure(SubletError):
        async with anyio.create_task_group() as group:
            group.start_soon(tell)
            await held.enter_async_context(directory)
            group.cancel_scope.cancel()
    for lent in record.resources:
        await tools.journal.resources.acquire(record.id, "lock", {"path": lent.path})
    await keeper.note(condition=None)
