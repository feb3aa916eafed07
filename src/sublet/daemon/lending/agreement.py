"""What INVITE, ACCEPT and the course of a delegation come to for its record (AWCP 4, DESIGN 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

from sublet.daemon.api.delegation_views import ConditionView, LeaseQuota
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.lending.lent_resources import widest
from sublet.daemon.ports.peer_link import PeerAddress
from sublet.daemon.storage.panel_parts import PanelPart
from sublet.daemon.storage.records import DelegationRecord, ResourceRecord
from sublet.daemon.times import rfc3339
from sublet.protocol.bounds import MAX_DESCRIPTION_CHARS
from sublet.protocol.chain import Chain
from sublet.protocol.ids import fingerprint, new_delegation_id
from sublet.protocol.messages import ChainExtension
from sublet.protocol.text import clean_line

MAX_HOLDERS_NAMED = 3


def queued(place: int, holders: Sequence[str]) -> ConditionView:
    """Return the condition of a delegation that waits for its directory as number ``place``.

    Args:
        place: in the queue; 1 is next.
        holders: the delegations that have the directory, or a part of it, now.
    """
    who = ", ".join(holders[:MAX_HOLDERS_NAMED]) or "another lease"
    more = f" and {len(holders) - MAX_HOLDERS_NAMED} more" if len(holders) > MAX_HOLDERS_NAMED else ""
    holds = "hold" if len(holders) > 1 else "holds"
    detail = f"{who}{more} {holds} this directory or a part of it; number {place} in the queue"
    return ConditionView(kind="queued", detail=detail, position=place)


def new_record(
    request: CreateDelegation,
    caller: str,
    resources: Sequence[ResourceRecord],
    peer: PeerAddress,
    agent: str | None,
    ttl_seconds: int,
    quota: LeaseQuota,
    chain: Chain,
    panel: PanelPart | None = None,
) -> DelegationRecord:
    """Return the record of a delegation that begins now; the arguments are those of ``Delegator.create``."""
    now = rfc3339()
    first_line = request.prompt.strip().splitlines()[0] if request.prompt.strip() else ""
    return DelegationRecord(
        id=new_delegation_id() if panel is None else panel.members[panel.index].delegation_id,
        caller=caller,
        request=request,
        peer=peer.name,
        peer_fingerprint=fingerprint(peer.public_key),
        agent=agent,
        resources=tuple(resources),
        description=clean_line(request.description or first_line, MAX_DESCRIPTION_CHARS - 40),
        access_mode=widest(resources),
        ttl_seconds=ttl_seconds,
        quota=quota,
        chain=ChainExtension.of(chain),
        panel=panel,
        created_at=now,
        updated_at=now,
    )
