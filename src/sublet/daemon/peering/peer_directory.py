"""Who is paired, which agents each offers, and whether it can be reached now (DESIGN 5 ``directory``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from sublet import deadlines
from sublet.daemon.api.peers import PeerView
from sublet.daemon.peering.peers import Peer, PeerStore
from sublet.daemon.ports.peer_link import PeerLink
from sublet.protocol.errors import SubletError

ASK_SECONDS = 3.0
"""How long a peer is given to answer with its card."""
MAX_ASKED = 16
"""Peers that are asked at once."""

log = structlog.get_logger(__name__)


class PeerDirectory:
    """Asks all paired daemons for their agents, side by side.

    Args:
        peers: the paired daemons.
        link: asks them.
        why_no_rooms: returns why no rooms are shared with the peer of a name; empty where they are.
        other_clock: returns by how much that peer's clock differs; empty where it does not.
    """

    def __init__(
        self,
        peers: PeerStore,
        link: PeerLink,
        why_no_rooms: Callable[[str], str],
        other_clock: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._peers = peers
        self._link = link
        self._why_no_rooms = why_no_rooms
        self._other_clock = other_clock

    async def views(self) -> list[PeerView]:
        """Return all peers; one that does not answer says so itself instead of being left out."""
        gate = asyncio.Semaphore(MAX_ASKED)

        async def ask(peer: Peer) -> PeerView:
            async with gate:
                return await self._view(peer)

        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(peer)) for peer in self._peers.list()]
        return [task.result() for task in asked]

    async def _view(self, peer: Peer) -> PeerView:
        view = partial(peer.view, rooms=self._why_no_rooms(peer.name), clock=self._other_clock(peer.name))
        try:
            async with deadlines.timeout(ASK_SECONDS):
                return view(await self._link.agents(peer.address()))
        except TimeoutError:
            why = f"{peer.name} did not answer within {ASK_SECONDS:.0f} s"
            return view(usable=False, why_not=why)
        except SubletError as error:
            return view(usable=False, why_not=error.message)
        except Exception:
            # One odd answer must not hide all the other peers.
            log.exception("a peer's card could not be read", peer=peer.name)
            why = f"what {peer.name} answered could not be read; see the log"
            return view(usable=False, why_not=why)
