"""What the daemon's journal keeps of a core's state, as the models keep it: what dies with a process is as at first."""

from __future__ import annotations

from sublet.protocol.assignment.state import Assignment
from sublet.protocol.delegation.state import Delegation


def delegation_kept(state: Delegation) -> Delegation:
    """Return what the journal keeps of ``state``: a process that takes it over has nothing else."""
    return Delegation(
        state.id,
        state.peer,
        state.access_mode,
        state.ttl_seconds,
        state.created_at,
        within=state.within,
        callers=state.callers,
        demands=state.demands,
        transports=state.transports,
        patient=state.patient,
        state=state.state,
        generation=state.generation,
        prepared=state.prepared,
        accept=state.accept,
        expires_at=state.expires_at,
        done=state.done,
        settled=state.settled,
        follow_ups=state.follow_ups,
    )


def assignment_kept(state: Assignment) -> Assignment:
    """Return what the journal keeps of ``state``: a process that takes it over has nothing else."""
    return Assignment(
        state.owner,
        state.invite,
        state.accept,
        state=state.state,
        generation=state.generation,
        access_mode=state.access_mode,
        expires_at=state.expires_at,
    )
