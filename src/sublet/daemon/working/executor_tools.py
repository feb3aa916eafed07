"""What the work of every assignment takes: how files are brought here, who works, and what stands before its tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sublet.daemon.ports.talking import SILENT, Talking
from sublet.daemon.storage.records import AssignmentRecord
from sublet.supervisor.job import Deadline, JobResource, Provider
from sublet.supervisor.tool_gate import ToolGate
from sublet.workspace.carrier import Carrier
from sublet.workspace.ssh.reverse import ReverseAcceptor


class GateOfAssignment(Protocol):
    """Makes what stands before the tools of an assignment's agent."""

    def __call__(
        self,
        record: AssignmentRecord,
        resources: Sequence[JobResource],
        deadline: Deadline,
        waiting: Callable[[str | None], None],
    ) -> ToolGate:
        """Return the gate; ``waiting`` is told while a person is waited for."""


@dataclass(frozen=True, slots=True)
class ExecutorTools:
    """What every assignment works with; the composition root makes it once.

    Args:
        carriers: by transport, how a view is brought here.
        reverse: takes up connections where the delegator dials.
        provider: runs the agent of an id.
        scratch_root: below it each assignment has a private directory.
        gate: makes what stands before the tools of an assignment's agent.
        talking: how agents at work talk with their delegator.
    """

    carriers: Mapping[str, Carrier]
    reverse: ReverseAcceptor
    provider: Callable[[str], Provider]
    scratch_root: Path
    gate: GateOfAssignment
    talking: Talking = SILENT
