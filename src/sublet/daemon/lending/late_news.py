"""Telling a peer that could not be reached that its task is over, once it is heard again (DESIGN 4.10)."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio
import structlog

from sublet import deadlines
from sublet.daemon.ports.peer_link import PeerAddress, PeerLink, RemoteTask
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import DelegationRecord
from sublet.protocol.errors import SubletError
from sublet.protocol.times import unix_seconds

FIRST_TELL_SECONDS = 1.0
MAX_TELL_SECONDS = 15.0
"""How long an attempt to tell a silent peer that its task is over may take, and the wait for the next."""
TELL_SLACK_SECONDS = 90.0
"""For how long after the end of a lease a peer may still hold something of it."""

FindPeer = Callable[[DelegationRecord], PeerAddress | None]
"""Returns how to call the peer of a delegation now; None where the one with that key is not paired any more."""

log = structlog.get_logger(__name__)


class LateNews:
    """Tells peers of ends that they have missed, so that their slots are free.

    Args:
        journal: what of the peers' is still held, by delegations.
        link: the way to the peers.
        find_peer: returns how to call the peer of a delegation now, or None.
    """

    def __init__(self, journal: Journal, link: PeerLink, find_peer: FindPeer) -> None:
        self._journal = journal
        self._link = link
        self._find_peer = find_peer

    async def tell(self, delegation_id: str) -> None:
        """Tell the peer of a delegation that it is over, as soon as it is heard again.

        Until its lease would be over anyway; a task that was never started is given up there after a minute.
        """
        record = await self._journal.load_delegation(delegation_id)
        wait = FIRST_TELL_SECONDS
        until = 0.0 if record is None else unix_seconds(record.expires_at or record.updated_at) + TELL_SLACK_SECONDS
        while record is not None and time.time() < until:
            peer = self._find_peer(record)
            if peer is None:
                break
            try:
                async with deadlines.timeout(MAX_TELL_SECONDS):
                    await self._link.cancel(peer, RemoteTask(record.task_id or "", record.context_id or record.id))
                break
            except (SubletError, TimeoutError) as error:
                log.info("the peer is told of the end later", delegation_id=delegation_id, reason=str(error))
            except Exception:
                log.exception("the peer is told of the end later", delegation_id=delegation_id)
            await anyio.sleep(wait)
            wait = min(2 * wait, MAX_TELL_SECONDS)
        await self._journal.resources.release_owned(delegation_id, "remote_task")
