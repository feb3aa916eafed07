"""What becomes of invitations without a person: policy is asked whether a peer may bring ours into rooms by itself.

``room.join`` is asked with the peer as the subject, and for each of ours who is invited the local part of its id as the
resource. What a rule allows is taken up, what one denies is not kept, and where no rule says anything it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.peering.peers import PeerStore
from sublet.daemon.rooms.entities import DAEMON, HUMAN, MCP
from sublet.messaging.membership.consent import Consent
from sublet.policy.decision import UNMATCHED, Action, Decision, Resource, Subject
from sublet.protocol.ezagent.ids import EntityId


class InvitationRules:
    """Implements ``ConsentRules``.

    Args:
        gate: asks policy.
        peers: the paired daemons.
        node_id: ours.
        agents: returns the ids of the agents that are served now.
    """

    def __init__(self, gate: Gatekeeper, peers: PeerStore, node_id: str, agents: Callable[[], Iterable[str]]) -> None:
        self._gate = gate
        self._peers = peers
        self._node_id = node_id
        self._agents = agents

    def foresee(self, home: str) -> Consent:
        """``ConsentRules.foresee``."""
        if home == self._node_id:
            return Consent.ACCEPT
        peer = self._peers.by_node_id(home)
        if peer is None:
            return Consent.REFUSE
        caller = Subject("peer", peer.name)
        ours = (HUMAN, MCP, DAEMON, *self._agents())
        found = {
            _consent(self._gate.foresee(caller, Action.ROOM_JOIN, Resource(name)).decision)
            for name in dict.fromkeys(ours)
        }
        return next(one for one in (Consent.ACCEPT, Consent.ASK, Consent.REFUSE) if one in found)

    async def decide(self, home: str, whom: Collection[EntityId]) -> Consent:
        """``ConsentRules.decide``: of several who are invited the strictest answer counts."""
        if home == self._node_id:
            return Consent.ACCEPT
        peer = self._peers.by_node_id(home)
        if peer is None or not whom:
            return Consent.REFUSE
        caller = Subject("peer", peer.name)
        wanted = [Resource(_local(entity)) for entity in whom]
        found = {_consent(self._gate.foresee(caller, Action.ROOM_JOIN, one).decision) for one in wanted}
        if found == {Consent.ACCEPT}:
            # Asked once more, so that what is taken up without a person is in the audit log.
            found = {_consent(await self._gate.decide(caller, Action.ROOM_JOIN, one)) for one in wanted}
        return next(one for one in (Consent.REFUSE, Consent.ASK, Consent.ACCEPT) if one in found)


def _local(entity: EntityId) -> str:
    return entity.partition(":")[0].removeprefix("@")


def _consent(decision: Decision) -> Consent:
    if decision.allowed:
        return Consent.ACCEPT
    return Consent.ASK if decision.needs_grant or decision.rule == UNMATCHED else Consent.REFUSE
