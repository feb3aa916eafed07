"""Whose invitations are accepted by themselves, wait, or are not kept: policy says it, by peer and by who is meant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from sublet.daemon.peering.peers import PeerStore
from sublet.daemon.rooms.invitation_rules import InvitationRules
from sublet.daemon.storage.journal import Journal
from sublet.messaging.membership.consent import Consent
from sublet.policy.config import parse
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from support.decisions import KeptDecisions, gatekeeper

pytestmark = pytest.mark.anyio
OURS, BOB, EVE, STRANGER = "node-ours", "node-bob", "node-eve", "node-stranger"
HUMAN, REVIEWER = f"@human:{OURS}", f"@reviewer:{OURS}"


@dataclass
class Named:
    name: str


class Peers:
    """Two paired daemons."""

    def by_node_id(self, node_id: str) -> Named | None:
        name = {BOB: "bob", EVE: "eve"}.get(node_id)
        return None if name is None else Named(name)


def rules(*given: dict[str, Any], log: KeptDecisions | None = None) -> InvitationRules:
    policy = Policy(Protected(Path("/nowhere")), parse({"version": 1, "global": list(given)}))
    gate = gatekeeper(cast(Journal, None), policy, log)
    return InvitationRules(gate, cast(PeerStore, Peers()), OURS, lambda: ["reviewer"])


def rule(effect: str, peer: str, resource: str = "*") -> dict[str, Any]:
    subject = {"kind": "peer", "name": peer}
    return {"id": f"{effect}-{peer}", "effect": effect, "action": "room.join", "resource": resource, "subject": subject}


async def test_without_a_rule_a_peer_asks_and_a_stranger_gets_nothing() -> None:
    found = rules()
    assert (found.foresee(BOB), await found.decide(BOB, [HUMAN])) == (Consent.ASK, Consent.ASK)
    assert (found.foresee(STRANGER), await found.decide(STRANGER, [HUMAN])) == (Consent.REFUSE, Consent.REFUSE)
    assert (found.foresee(OURS), await found.decide(OURS, [HUMAN])) == (Consent.ACCEPT, Consent.ACCEPT)
    assert await found.decide(BOB, []) is Consent.REFUSE


async def test_who_is_trusted_is_accepted_by_itself_and_that_is_in_the_audit_log() -> None:
    log = KeptDecisions()
    found = rules(rule("allow", "bob"), log=log)
    assert found.foresee(BOB) is Consent.ACCEPT
    assert log.entries == [], "what is only foreseen is not written down"
    assert await found.decide(BOB, [HUMAN]) is Consent.ACCEPT
    ((kind, entry),) = log.entries
    assert kind == "decision"
    assert (entry["subject"], entry["action"], entry["resource"]) == ("peer bob", "room.join", "human")
    assert log.durable == {1}
    assert await found.decide(EVE, [HUMAN]) is Consent.ASK
    assert len(log.entries) == 1, "what waits is nobody's decision yet"


async def test_a_rule_may_be_about_one_of_ours_and_the_strictest_answer_counts() -> None:
    found = rules(rule("allow", "bob", "reviewer"), rule("deny", "eve", "human"))
    assert found.foresee(BOB) is Consent.ACCEPT, "the best that could become of it"
    assert await found.decide(BOB, [REVIEWER]) is Consent.ACCEPT
    assert await found.decide(BOB, [HUMAN]) is Consent.ASK
    assert await found.decide(BOB, [REVIEWER, HUMAN]) is Consent.ASK
    assert found.foresee(EVE) is Consent.ASK
    assert await found.decide(EVE, [REVIEWER]) is Consent.ASK
    assert await found.decide(EVE, [REVIEWER, HUMAN]) is Consent.REFUSE
    assert await rules(rule("approval", "bob")).decide(BOB, [HUMAN]) is Consent.ASK
