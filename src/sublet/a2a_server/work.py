"""What a message asks for, once it has been checked: the context builder's finding, the executor's job."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

from a2a.server.context import ServerCallContext
from a2a.types import Task

from sublet.daemon.ports.given_to_a2a import KnownPeer
from sublet.policy.decision import Subject
from sublet.policy.request_rules import Narrowing
from sublet.protocol.chain import Chain
from sublet.protocol.messages import Error, Invite, Start

_STATE_KEY = "sublet.work"
_DELEGATION_PREFIX = "tsk_"


@dataclass(frozen=True, slots=True)
class AwcpWork:
    """A verified INVITE or START of a paired peer."""

    message: Invite | Start
    peer: KnownPeer
    source_host: str


@dataclass(frozen=True, slots=True)
class TextWork:
    """A plain message.

    ``owner`` tells whose conversations it may go on with, ``chain`` who called until here, where another agent sent it,
    ``answers`` whether it answers the question with which its task waits, ``still_known`` whether its sender would be
    let in now, and ``narrowing`` what it leaves of what agents may call for it.
    """

    text: str
    subject: Subject
    owner: str
    chain: Chain
    answers: bool
    still_known: Callable[[], bool]
    narrowing: Narrowing


Work: TypeAlias = AwcpWork | TextWork


class AlreadyAnswered(Exception):
    """The message was answered before: the answer is the task as it stands."""

    def __init__(self, task: Task) -> None:
        super().__init__(task.id)
        self.task = task


class StopRequested(Exception):
    """The message is an AWCP ERROR for a live task and acts as CancelTask, unless it gives grace (DESIGN 4.2)."""

    def __init__(self, task: Task, message: Error, peer: KnownPeer) -> None:
        super().__init__(task.id)
        self.task = task
        self.message = message
        self.peer = peer


class RenewRequested(Exception):
    """The message is a START for work that runs already: it goes past the SDK, which would queue and then drop it."""

    def __init__(self, task: Task, start: Start, peer: KnownPeer, source_host: str) -> None:
        super().__init__(task.id)
        self.task = task
        self.start = start
        self.peer = peer
        self.source_host = source_host


def put_work(context: ServerCallContext, work: Work) -> None:
    """Leave ``work`` for the executor."""
    context.state[_STATE_KEY] = work


def take_work(context: ServerCallContext) -> Work:
    """Return the work and forget it: START holds a credential, and the SDK keeps the context as long as the task."""
    return cast("Work", context.state.pop(_STATE_KEY))


def task_id_for(owner: str, delegation_id: str) -> str:
    """Return the one task id of a delegation.

    Derived, not drawn, so that two INVITEs of one delegation that arrive together meet in the same task.
    """
    return _DELEGATION_PREFIX + hashlib.sha256(f"{owner}\0{delegation_id}".encode()).hexdigest()[:32]


def is_delegation(task: Task) -> bool:
    """Tell whether ``task`` is that of a delegation: its id is derived, while the SDK draws all others."""
    return task.id.startswith(_DELEGATION_PREFIX)
