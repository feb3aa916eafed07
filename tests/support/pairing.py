"""Two daemons' pairing halves in one process, and a link between them that a test may tamper with."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sublet.daemon.api.peers import AgentView
from sublet.daemon.peering.identity import Identity, load_identity
from sublet.daemon.peering.pairing import OwnAddress, PairingService
from sublet.daemon.peering.peers import PeerStore
from sublet.daemon.ports.given_to_a2a import Moved, PairReply, PairRequest
from sublet.daemon.ports.peer_link import BusAddress, PeerAddress, RemoteTask, Update
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.protocol.messages import Accept, Error, Invite, Start


class DirectLink:
    """A ``PeerLink`` that pairs by calling the other side in this process."""

    def __init__(self) -> None:
        self.other: PairingService | None = None
        self.requests: list[PairRequest] = []
        self.change_request: Callable[[PairRequest], PairRequest] = lambda request: request
        self.change_reply: Callable[[PairReply], PairReply] = lambda reply: reply

    async def pair(self, url: str, request: PairRequest, *, tls_fingerprint: str | None) -> PairReply:
        assert self.other is not None
        self.requests.append(request)
        return self.change_reply(await self.other.complete(self.change_request(request)))

    async def invite(self, peer: PeerAddress, message: Invite) -> tuple[RemoteTask, Accept | Error]:
        raise NotImplementedError

    async def run(self, peer: PeerAddress, task: RemoteTask, message: Start) -> AsyncGenerator[Update, None]:
        raise NotImplementedError
        yield

    async def follow(
        self, peer: PeerAddress, task: RemoteTask, message: Callable[[], Start]
    ) -> AsyncGenerator[Update, None]:
        raise NotImplementedError
        yield

    async def renew(self, peer: PeerAddress, task: RemoteTask, message: Start) -> Accept | Error:
        raise NotImplementedError

    async def cancel(self, peer: PeerAddress, task: RemoteTask) -> None:
        raise NotImplementedError

    async def fail(self, peer: PeerAddress, task: RemoteTask, message: Error) -> None:
        raise NotImplementedError

    async def tell_moved(self, peer: PeerAddress, moved: Moved) -> None:
        raise NotImplementedError

    async def bus(self, peer: PeerAddress) -> BusAddress | None:
        raise NotImplementedError

    async def agents(self, peer: PeerAddress) -> list[AgentView]:
        raise NotImplementedError

    async def aclose(self) -> None:
        return


@dataclass
class Side:
    """One daemon's half; ``clock`` is its wall clock and ``address`` how it is reached, both for the test to set."""

    identity: Identity
    store: Store
    journal: Journal
    peers: PeerStore
    link: DirectLink
    pairing: PairingService
    address: OwnAddress
    clock: float = 1_800_000_000.0
    spoken: Callable[[str], str | None] = lambda _: None
    """What of the configuration names a peer."""


@asynccontextmanager
async def side(directory: Path, port: int) -> AsyncIterator[Side]:
    """Open one half with its own keys and store."""
    directory.mkdir(exist_ok=True)
    store = await Store.open(directory / "sublet.db")
    try:
        journal = Journal(store)
        identity = load_identity(directory / "keys")
        peers = await PeerStore.load(journal)
        link = DirectLink()
        half: Side
        asked = (lambda: half.address, lambda: half.spoken, lambda: half.clock)
        pairing = PairingService(identity, journal, peers, link, *asked)
        half = Side(identity, store, journal, peers, link, pairing, OwnAddress(f"http://127.0.0.1:{port}/", None))
        yield half
    finally:
        await store.close()
