"""How each agent of a peer was held when it last took work from here, as its daemon declared with ACCEPT.

It is known in memory and found again in the newest delegations of the journal when somebody first asks, so that looking
at the directory reads no records.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from sublet.daemon.api.base import MAX_PAGE
from sublet.daemon.api.delegation_views import SandboxView
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import DelegationRecord

MAX_DECLARED: Final = 4_096
"""Agents of peers that are remembered; the one that took work longest ago goes first."""

Agent = tuple[str, str | None]
"""The fingerprint of a peer's key, and the agent that was asked for: None for the peer's first."""


class DeclaredSandboxes:
    """Remembers the newest declaration of each agent of each peer.

    Args:
        journal: holds the delegations in which peers have declared it.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._newest: OrderedDict[Agent, SandboxView] = OrderedDict()
        self._read = False
        self._reading = asyncio.Lock()

    def note(self, record: DelegationRecord) -> None:
        """Take what the ACCEPT of a delegation declares."""
        if (declared := record.declared_sandbox()) is not None and record.peer_fingerprint is not None:
            self._newest[record.peer_fingerprint, record.agent] = declared
            self._newest.move_to_end((record.peer_fingerprint, record.agent))
            self._bound()

    async def of(self, fingerprint: str, agents: list[str]) -> list[SandboxView | None]:
        """Return what the daemon with that key has declared of each of its agents; None where it has not.

        Args:
            fingerprint: of the peer's key.
            agents: ids of its agents, in the order of its card: who names no agent gets the first.
        """
        await self._find_again()
        unnamed = self._newest.get((fingerprint, None))
        return [
            self._newest.get((fingerprint, agent), unnamed if number == 0 else None)
            for number, agent in enumerate(agents)
        ]

    async def _find_again(self) -> None:
        async with self._reading:
            if self._read:
                return
            for record in await self._journal.list_delegations(limit=MAX_PAGE):
                declared, peer = record.declared_sandbox(), record.peer_fingerprint
                # The newest come first, and what was heard meanwhile is newer than all of them.
                if declared is not None and peer is not None and (peer, record.agent) not in self._newest:
                    self._newest[peer, record.agent] = declared
                    self._newest.move_to_end((peer, record.agent), last=False)
            self._bound()
            self._read = True

    def _bound(self) -> None:
        while len(self._newest) > MAX_DECLARED:
            self._newest.popitem(last=False)
