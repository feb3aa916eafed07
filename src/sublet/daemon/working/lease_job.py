"""The job that a lease gives to its agent: one prompt of it, with what is lent and until when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio

from sublet.daemon.storage.records import AssignmentRecord
from sublet.protocol.chain import Chain
from sublet.protocol.messages import Start
from sublet.supervisor.guarded_process import ReadyGuard
from sublet.supervisor.job import Deadline, Job, JobResource
from sublet.supervisor.tool_gate import ToolGate
from sublet.workspace.export import META, WORKSPACE


def make_job(
    record: AssignmentRecord,
    start: Start,
    prompt: str,
    *,
    mount_point: Path,
    scratch: Path,
    deadline: Deadline,
    gate: Callable[[Sequence[JobResource]], ToolGate],
    session: str | None,
    guard: ReadyGuard | None = None,
) -> Job:
    """Return the job of one prompt.

    Args:
        record: the assignment.
        start: the START that is in force.
        prompt: what is to be done now.
        mount_point: where the view is.
        scratch: the agent's private directory.
        deadline: when the lease ends.
        gate: makes what stands before the agent's tools, of what is lent.
        session: where an agent goes on that was run before.
        guard: was started ahead for its program.
    """
    resources = _resources(record, start, mount_point)
    left = max(0.0, deadline.at - anyio.current_time())
    sent = record.invite.sublet.chain
    return Job(
        delegation_id=record.id,
        description=record.invite.task.description,
        prompt=prompt,
        access_mode=start.lease.access_mode,
        resources=resources,
        meta=mount_point / META,
        scratch=scratch,
        mount_point=mount_point,
        remaining_seconds=left,
        expires_at=start.lease.expires_at,
        deadline=deadline,
        gate=gate(resources),
        provider_session_id=session,
        guard=guard,
        narrowing=record.narrowing,
        # Who called until here; the work's own lease is what is left of this one.
        chain=Chain(tuple(sent.execution_chain) if sent is not None else (), record.id, left),
    )


def _resources(record: AssignmentRecord, start: Start, mount_point: Path) -> list[JobResource]:
    """Return where the lent directories are; a lease for reading makes all of them read-only."""
    mode = start.lease.access_mode
    offered = record.invite.sublet.resources
    if not offered:
        return [JobResource(WORKSPACE, mount_point / WORKSPACE, mode)]
    return [
        JobResource(lent.name, mount_point / lent.name, "ro" if mode == "ro" else lent.access_mode) for lent in offered
    ]
