"""Serves the operations on the relay."""

from __future__ import annotations

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.peers import PeerView
from sublet.daemon.api.relay import PAIR_BY_NAME, REGISTER_NAME, SHOW_RELAY, PairByName, RegisterName, RelayView
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.net.addresses import parse_host_port
from sublet.daemon.operations.table import serves
from sublet.daemon.peering.identity import Identity
from sublet.daemon.peering.peers import Peer, PeerStore
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.rooms.relay_keeper import RelayKeeper
from sublet.policy.decision import Subject
from sublet.protocol import ids
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.times import rfc3339_of_ms


class RelayService:
    """Serves the operations of ``api.relay``.

    Args:
        gate: asks policy.
        relay: keeps this daemon at its relay.
        messaging: runs rooms, and with them the link to the relay.
        identity: ours.
        peers: the paired daemons.
    """

    def __init__(
        self, gate: Gatekeeper, relay: RelayKeeper, messaging: Messaging, identity: Identity, peers: PeerStore
    ) -> None:
        self._gate = gate
        self._relay = relay
        self._messaging = messaging
        self._identity = identity
        self._peers = peers

    @serves(REGISTER_NAME)
    async def register(self, request: RegisterName, caller: Subject) -> RelayView:
        if request.at is not None:
            try:
                parse_host_port(request.at)
            except ValueError as error:
                raise SubletError(
                    LocalCode.INVALID_ARGUMENT, f"{request.at} can't be asked: {error}", "It is HOST:PORT."
                ) from None
        await self._relay.register(request.name, request.at)
        await self._messaging.use()
        return await self._view()

    @serves(SHOW_RELAY)
    async def show(self, request: Nothing, caller: Subject) -> RelayView:
        return await self._view()

    @serves(PAIR_BY_NAME)
    async def pair(self, request: PairByName, caller: Subject) -> PeerView:
        """Pin a key that the relay tells, if it is the one whose fingerprint the person knows.

        Raises:
            SubletError: ``INVALID_ARGUMENT``: no name at our relay; ``KEY_CHANGED``: the name stands for another key;
                ``CONFLICT``: we are paired with that daemon; and what the relay refuses.
        """
        local, _, domain = request.entity_id.removeprefix("@").partition(":")
        ours = await self._relay.registration()
        if ours is None or not request.entity_id.startswith("@") or domain != ours.domain:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"{request.entity_id!r} is no name at our relay",
                "It is such as @bob:relay.example; register first: sublet register NAME",
            )
        record = await self._relay.record(local)
        found = ids.fingerprint(record.key)
        if record.revoked or record.entity_id != request.entity_id:
            raise SubletError(LocalCode.NOT_FOUND, f"{request.entity_id} was revoked", "Ask whoever had it.")
        if found != request.fingerprint:
            raise SubletError(
                LocalCode.KEY_CHANGED,
                f"the relay says that {request.entity_id} has the key {found}, which is not the one that was given",
                "Ask the other side what its key is, by a way that is not the relay's. Nothing was pinned.",
            )
        known = self._peers.by_node_id(record.node_id)
        if known is not None:
            raise SubletError(
                LocalCode.CONFLICT, f"that daemon is paired already, as {known.name}", "See sublet peers list."
            )
        return (await self._peers.add(Peer(request.name, record.key, None, None))).view()

    async def _view(self) -> RelayView:
        known = await self._relay.registration()
        return RelayView(
            relay=self._relay.relay,
            entity_id=known.entity_id if known is not None else None,
            node_id=self._identity.node_id,
            fingerprint=self._identity.fingerprint,
            slot=known.slot if known is not None else None,
            expires_at=rfc3339_of_ms(known.expires_at * 1_000) if known is not None else None,
            linked=self._relay.linked,
            remarks=self._relay.remarks(),
        )
