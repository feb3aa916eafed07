"""INVITE: what it says, and when it is sent again (AWCP 4.1)."""

from __future__ import annotations

import anyio

from sublet.daemon.api.delegation_views import ConditionView
from sublet.daemon.lending.keeper import DelegationKeeper
from sublet.daemon.lending.lent_resources import offered
from sublet.daemon.lending.transports import offered_transports
from sublet.daemon.ports import NotConnected, PeerAddress, PeerLink, RemoteTask
from sublet.daemon.storage.records import DelegationRecord
from sublet.protocol.demands import names_to_enforce
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.messages import (
    Accept,
    Error,
    Invite,
    InviteExtension,
    ProposedLease,
    Requirements,
    Task,
    Workspace,
)

RETRY_PEER_SECONDS = 2.0
"""How often an offline peer is tried again where the caller asked to wait for it."""
RECONNECT_PEER_SECONDS = 5.0
"""How long a peer that nobody answers for is tried again: longer than the restart of a daemon takes."""
FIRST_RECONNECT_SECONDS = 0.25
"""Doubled with each try."""
BUSY_PEER_SECONDS = 30.0
"""How long a peer that says it is busy is asked again before the delegation fails for it."""


async def invited(link: PeerLink, peer: PeerAddress, keeper: DelegationKeeper) -> tuple[RemoteTask, Accept | Error]:
    """Send INVITE and return its answer.

    It is sent again where that is safe: a peer knows it by its id, a busy one has not taken it, and one to which no
    connection could be made has not even heard it.

    Raises:
        SubletError: as ``PeerLink.invite``.
    """
    invite = invitation(keeper.record)
    began = anyio.current_time()
    reconnect = FIRST_RECONNECT_SECONDS
    while True:
        try:
            return await link.invite(peer, invite)
        except SubletError as error:
            if error.code != LocalCode.PEER_UNREACHABLE:
                raise
            wait, tried = float(error.retry_after_seconds or 0), anyio.current_time() - began
            if wait and tried + wait < BUSY_PEER_SECONDS:
                condition = ConditionView(kind="retrying", detail=f"{error.message}; asked again in {wait:.0f} s")
            elif keeper.record.request.wait_for_peer:
                condition = ConditionView(kind="waiting_for_peer", detail=error.message)
                wait = max(wait, RETRY_PEER_SECONDS)
            elif isinstance(error, NotConnected) and tried + reconnect < RECONNECT_PEER_SECONDS:
                condition = ConditionView(kind="retrying", detail=f"{error.message}; tried again for a few seconds")
                wait, reconnect = reconnect, 2 * reconnect
            else:
                raise
            await keeper.note(condition=condition)
        await anyio.sleep(wait)


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
        ),
    )
