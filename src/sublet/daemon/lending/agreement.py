"""What INVITE, ACCEPT and the course of a delegation come to for its record (AWCP 4, DESIGN 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath

from sublet.daemon.api.delegation_views import ConditionView, LeaseQuota
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.lending.lent_resources import widest
from sublet.daemon.ports import PeerAddress
from sublet.daemon.storage.records import DelegationRecord, ResourceRecord
from sublet.daemon.times import rfc3339
from sublet.protocol.bounds import MAX_DESCRIPTION_CHARS, AccessMode
from sublet.protocol.chain import Chain
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.ids import fingerprint, new_delegation_id
from sublet.protocol.messages import Accept, ChainExtension
from sublet.protocol.text import clean_line

RESUMABLE_TRANSPORTS = frozenset({"sshfs", "archive", "git"})
"""Transports that go on when their link comes back."""
MAX_HOLDERS_NAMED = 3


def narrowed(record: DelegationRecord, accept: Accept) -> tuple[AccessMode, int]:
    """Return access and seconds as ACCEPT leaves them: it may take from what was proposed and never adds to it."""
    constraints = accept.remote_constraints
    mode = "ro" if constraints.accepted_access_mode == "ro" else record.access_mode
    return mode, min(record.ttl_seconds, constraints.max_ttl_seconds or record.ttl_seconds)


def check_mount_point(accept: Accept) -> None:
    """Refuse an ACCEPT that names no absolute path (AWCP 4.2); nothing here ever opens it."""
    path = accept.remote_mount.mount_point
    if not PurePosixPath(path).is_absolute() and not PureWindowsPath(path).is_absolute():
        raise SubletError(
            ErrorCode.MOUNTPOINT_DENIED,
            "the executor named a mount point that is no absolute path",
            "Its mount root has to be configured as an absolute path.",
        )


def resumable(record: DelegationRecord) -> bool:
    """Tell whether work that was begun can go on under a new process of ours: without any secret, in the same view."""
    accept = record.accept
    return (
        accept is not None
        and accept.sublet.renewable
        and accept.remote_constraints.public_key is not None
        and record.transport in RESUMABLE_TRANSPORTS
    )


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
) -> DelegationRecord:
    """Return the record of a delegation that begins now; the arguments are those of ``Delegator.create``."""
    now = rfc3339()
    first_line = request.prompt.strip().splitlines()[0] if request.prompt.strip() else ""
    return DelegationRecord(
        id=new_delegation_id(),
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
        created_at=now,
        updated_at=now,
    )
