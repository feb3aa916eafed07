"""INVITE: what it says, and what is shown while it is to be sent again (AWCP 4.1)."""

from __future__ import annotations

from sublet.daemon.api.delegation_views import ConditionView
from sublet.daemon.lending.lent_resources import offered
from sublet.daemon.lending.options import offered_transports
from sublet.daemon.storage.records import DelegationRecord
from sublet.protocol.delegation.outputs import InviteLater
from sublet.protocol.demands import names_to_enforce
from sublet.protocol.lease_terms import LeaseTerms
from sublet.protocol.messages import Invite, InviteExtension, ProposedLease, Requirements, Task, Workspace


def waiting(later: InviteLater) -> ConditionView:
    """Return the condition of a delegation whose INVITE is sent again later."""
    message = later.error.message
    match later.why:
        case "busy":
            return ConditionView(kind="retrying", detail=f"{message}; asked again in {later.seconds:.0f} s")
        case "offline":
            return ConditionView(kind="waiting_for_peer", detail=message)
        case "unanswered":
            return ConditionView(kind="retrying", detail=f"{message}; tried again for a few seconds")


def invitation(record: DelegationRecord) -> Invite:
    """Return the INVITE of a delegation; it is the same each time, so that the peer knows it again."""
    transports = offered_transports(record.request)
    return Invite(
        delegation_id=record.id,
        task=Task(description=record.description, prompt=record.request.prompt),
        lease=ProposedLease(ttl_seconds=record.ttl_seconds, access_mode=record.access_mode),
        workspace=Workspace(export_name=f"awcp/{record.id}"),
        requirements=Requirements(transport=transports[0]),
        sublet=InviteExtension(
            agent=record.agent,
            transports=list(transports),
            resources=offered(record),
            require_enforced=names_to_enforce(record.request.require_enforced),
            result_mode=record.request.result_mode,
            chain=record.chain,
            terms=LeaseTerms.of(record.request),
        ),
    )
