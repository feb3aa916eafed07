"""The area of peers: who is paired, how each is called, and where we are for them."""

from __future__ import annotations

from dataclasses import dataclass

from sublet.a2a_client.client import A2APeerLink
from sublet.a2a_client.text_link import A2ATextLink
from sublet.app.governance import Governance
from sublet.app.ground import Ground
from sublet.daemon.peering.homes import Homes
from sublet.daemon.peering.pairing import PairingService
from sublet.daemon.peering.peer_names import Spoken
from sublet.daemon.peering.peers import PeerStore
from sublet.daemon.peering.spoken_names import spoken_names
from sublet.daemon.peering.tokens import TokenStore
from sublet.daemon.peering.whereabouts import Whereabouts
from sublet.daemon.ports.peer_link import PeerAddress, PeerLink, TextLink
from sublet.daemon.storage.records import DelegationRecord


@dataclass(frozen=True, slots=True)
class Peering:
    """Its parts.

    Args:
        peers: the paired daemons.
        tokens: of plain clients.
        link: calls paired daemons.
        texts: speaks with agents elsewhere.
        pairing: pairs.
        whereabouts: tells peers where we are, and hears where they are.
        homes: notices peers that run twice.
    """

    peers: PeerStore
    tokens: TokenStore
    link: PeerLink
    texts: TextLink
    pairing: PairingService
    whereabouts: Whereabouts
    homes: Homes

    def of_delegation(self, record: DelegationRecord) -> PeerAddress | None:
        """Return how to call the peer of a delegation now, None where it is not paired any more."""
        return self.peers.address_of(record.peer, record.peer_fingerprint, record.created_at)


async def make_peering(ground: Ground, governance: Governance) -> Peering:
    """Read who is paired, and make what calls them; nobody is called yet."""
    identity, journal = ground.identity, ground.journal
    who = (identity.key, identity.node_id, identity.fingerprint, identity.home)
    peers, link = await PeerStore.load(journal), A2APeerLink(*who)

    homes = Homes(ground.state_dir / "homes.json", peers.by_node_id)
    ground.opened.wait_for(link.aclose)

    def spoken() -> Spoken:
        return spoken_names(governance.policy.rules, ground.offer.agents)

    return Peering(
        peers=peers,
        tokens=await TokenStore.load(journal),
        link=link,
        texts=A2ATextLink(*who),
        pairing=PairingService(identity, journal, peers, link, ground.own_address, spoken),
        whereabouts=Whereabouts(identity, peers, link, ground.own_address, governance.nonces, homes=homes),
        homes=homes,
    )
