"""Between the record of a delegation and the state of its core: the record's format is what is on the disk."""

from __future__ import annotations

from collections.abc import Iterable

from sublet.daemon.api.reports import prompt_view
from sublet.daemon.lending.lent_resources import limited
from sublet.daemon.lending.options import offered_transports
from sublet.daemon.storage.records import DelegationRecord, FollowUpRecord, error_view
from sublet.protocol.delegation.outputs import Record
from sublet.protocol.delegation.state import Delegation, FollowUpNews, SaidFollowUp
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.prompt_state import PromptState
from sublet.protocol.times import unix_seconds


def delegation_of(record: DelegationRecord) -> Delegation:
    """Return the state that is journalled."""
    created_at = unix_seconds(record.created_at)
    chain = record.chain
    return Delegation(
        record.id,
        record.peer,
        record.access_mode,
        record.ttl_seconds,
        created_at,
        within=None if chain is None or chain.ttl is None else created_at + chain.ttl,
        callers="" if chain is None else chain.chain().shown(),
        demands=tuple(record.request.require_enforced),
        transports=offered_transports(record.request),
        patient=record.request.wait_for_peer,
        state=record.state,
        generation=record.generation,
        prepared=bool(record.snapshots),
        accept=record.accept,
        expires_at=record.expires_at,
        # Work that failed may have a result, too: what its agent said.
        done=record.result is not None and (not record.terminal or record.state is DelegationState.COMPLETED),
        settled=record.settled,
        follow_ups=tuple(SaidFollowUp(one.id, one.prompt, one.digest, one.state, one.why) for one in record.follow_ups),
    )


def changes_of(output: Record, record: DelegationRecord) -> dict[str, object]:
    """Return what the core wants changed of ``record``."""
    now = output.now
    changes: dict[str, object] = {
        "state": now.state,
        "generation": now.generation,
        "ttl_seconds": now.ttl_seconds,
        "expires_at": now.expires_at,
        "settled": now.settled,
    }
    if now.access_mode != record.access_mode:
        changes |= {"access_mode": now.access_mode, "resources": limited(record, now.access_mode)}
    if output.error is not None:
        changes["error"] = error_view(output.error)
    if output.said is not None:
        changes["follow_ups"] = _follow_ups(record.follow_ups, output.said)
    return changes


def heard_of(prompts: Iterable[PromptState]) -> tuple[FollowUpNews, ...]:
    """Return what the executor says of follow-ups."""
    return tuple(
        FollowUpNews(one.follow_up_id, one.state, prompt_view(one).ended() if one.state == "failed" else "")
        for one in prompts
        if one.follow_up_id is not None
    )


def _follow_ups(known: tuple[FollowUpRecord, ...], said: SaidFollowUp) -> tuple[FollowUpRecord, ...]:
    follow_ups = {one.id: one for one in known}
    before = follow_ups.get(said.id)
    if before is None:
        follow_ups[said.id] = FollowUpRecord(id=said.id, prompt=said.prompt, digest=said.digest)
    else:
        follow_ups[said.id] = before.settled(said.state, said.why)
    return tuple(follow_ups.values())
