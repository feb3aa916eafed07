"""What the gate of a run and its foresight know of that run: who acts, where, for whom and until when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sublet.policy.decision import Subject
from sublet.policy.request_rules import NOT_NARROWED, Narrowing
from sublet.protocol.chain import Chain
from sublet.protocol.events import EventKeys
from sublet.supervisor.job import Deadline, JobResource

Waiting = Callable[[str | None], None]
"""Is told what a run waits for, and None once it does not any more."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Whose tools they are, and where they act.

    Args:
        subject: the agent.
        scope: the delegation or session, within which alone an approval counts.
        resources: the directories of its lease.
        keys: of the events of its run.
        deadline: when its lease ends, on the loop's clock.
        delegation_id: the delegation it works for, if any.
        peer: the daemon that gave the work, if any.
        chain: who called until here.
        waiting: is told while a person is waited for.
        narrowing: what whoever asked for the run leaves of what its agents may call.
    """

    subject: Subject
    scope: str
    resources: Sequence[JobResource]
    keys: EventKeys
    deadline: Deadline
    delegation_id: str | None = None
    peer: str | None = None
    chain: Chain = field(default_factory=Chain)
    waiting: Waiting = lambda _: None
    narrowing: Narrowing = NOT_NARROWED
