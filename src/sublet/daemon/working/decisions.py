"""Drives the core of one assignment: one event at a time, and what it wants done in the order in which it wants it.

The core decides; whoever is passed in as ``perform`` journals, sends, holds and mounts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

import anyio
import asyncssh
from anyio.streams.memory import MemoryObjectReceiveStream

from sublet.daemon.ports.given_to_a2a import KnownPeer
from sublet.daemon.storage.records import AssignmentRecord
from sublet.protocol.assignment import core, phases
from sublet.protocol.assignment.events import Event, Undone
from sublet.protocol.assignment.outputs import Answer, AskPolicy, Consider, Finish, Output, Prompt, Record, Refuse
from sublet.protocol.assignment.phases import Phase
from sublet.protocol.assignment.state import Assignment, State
from sublet.protocol.errors import SubletError
from sublet.protocol.messages import Accept, Done, Progress, Start
from sublet.protocol.times import Now

Reply: TypeAlias = Answer | Refuse | AskPolicy | Consider | Prompt | Finish
"""What is for whoever has fed the event, and for nobody else."""
Perform: TypeAlias = Callable[["Decisions", Output, str], Awaitable[None]]


def now() -> Now:
    """Return the time by both clocks."""
    return Now(time.time(), anyio.current_time())


class Run(Protocol):
    """The work of a START that was taken: ``AssignmentRun``."""

    finished: asyncio.Event
    done: Done | None
    error: SubletError | None
    updates: MemoryObjectReceiveStream[Progress]

    def interrupt(self) -> None:
        """End the agent now."""

    def wind_down(self, error: SubletError, at: float) -> None:
        """Let the agent go on until ``at`` on the loop's clock, to end then for ``error``."""

    def renew(self, start: Start, host: str, deadline: float, ends_at: float) -> None:
        """Go on with what ``start`` from ``host`` says until ``deadline``; the agent ends at ``ends_at``."""

    def finish(self, end: Done | SubletError) -> None:
        """Let the reader of ``updates`` see the end."""


@dataclass(slots=True)
class Holdings:
    """What an assignment holds of this machine.

    Args:
        agent: who does the work.
        transport: how the files come here.
        mount_point: where they come.
        key: our half of the lease's credential, which never touches the disk.
        slot: gives the slot back.
        removed: whether nothing of the place for the files is there any more.
        given_back: whether that is journalled.
    """

    agent: str = ""
    transport: str = ""
    mount_point: Path | None = None
    key: asyncssh.SSHKey | None = None
    slot: ExitStack = field(default_factory=ExitStack)
    removed: bool = False
    given_back: bool = False


class Decisions:
    """The state of one assignment, and the turn of each event that changes it.

    Args:
        delegation_id: of the delegation.
        peer: its delegator; None for what is only looked at.
        perform: does an output that is no ``Reply``; raises ``SubletError`` where it can't be done. It is also told the
            host from which the event came, where it is a message.
        record: what is journalled of it, if anything.
    """

    def __init__(
        self,
        delegation_id: str,
        peer: KnownPeer | None,
        perform: Perform,
        record: AssignmentRecord | None = None,
    ) -> None:
        self.id = delegation_id
        self.held = Holdings()
        self._peer = peer
        self.record = record
        self.state: State = None if record is None else assignment_of(record)
        self.run: Run | None = None
        """What works on it, once START was taken."""
        self.decided = asyncio.Event()
        """Set once it no longer waits for its START."""
        self.renewed = asyncio.Event()
        """Set, and replaced, when it is renewed."""
        self._perform = perform
        self._turn = asyncio.Lock()
        self._next: Event | None = None

    @property
    def phase(self) -> Phase:
        """What the assignment is doing."""
        return phases.phase_of(self.state)

    @property
    def assignment(self) -> Assignment:
        """The state of an INVITE that was accepted."""
        assert isinstance(self.state, Assignment)
        return self.state

    @property
    def journalled(self) -> AssignmentRecord:
        """The record of an INVITE that was accepted."""
        assert self.record is not None
        return self.record

    @property
    def peer(self) -> KnownPeer:
        """Its delegator."""
        assert self._peer is not None
        return self._peer

    async def feed(self, event: Event, host: str = "") -> tuple[Reply, ...]:
        """Take what has happened, have done what follows from it, and return what is for the caller.

        It is done whole even where the caller gives up.
        """
        with anyio.CancelScope(shield=True):
            async with self._turn:
                replies = await self._step(event, host)
                if (event_after := self._next) is not None:
                    self._next = None
                    await self._step(event_after, "")
        return replies

    def feed_next(self, event: Event) -> None:
        """Have an event taken as soon as the outputs are done that are being done now."""
        self._next = event

    async def _step(self, event: Event, host: str) -> tuple[Reply, ...]:
        durable = self.state
        after, outputs = core.step(self.state, event, now())
        replies: list[Reply] = []
        for output in outputs:
            if isinstance(output, Reply):
                replies.append(output)
                continue
            try:
                await self._perform(self, output, host)
            except SubletError as error:
                self.state = durable
                return (*replies, *await self._step(Undone(output, error), host))
            if isinstance(output, Record):
                durable = output.now
        self.state = after
        if self.phase in (Phase.WORKING, Phase.ENDED):
            self.decided.set()
        return tuple(replies)

    def renewal(self) -> None:
        """Tell whoever waits for one that it was renewed."""
        renewed, self.renewed = self.renewed, asyncio.Event()
        renewed.set()


def assignment_of(record: AssignmentRecord) -> Assignment:
    """Return the state that is journalled."""
    return Assignment(
        record.peer_fingerprint,
        record.invite,
        record.accept,
        state=record.state,
        generation=record.generation,
        access_mode=record.access_mode,
        expires_at=record.expires_at,
    )


def accepted(replies: tuple[Reply, ...]) -> Accept:
    """Return the ACCEPT among ``replies``.

    Raises:
        SubletError: the refusal among them.
    """
    check(replies)
    return next(reply.accept for reply in replies if isinstance(reply, Answer))


def check(replies: tuple[Reply, ...]) -> None:
    """Raise the refusal among ``replies``, if any.

    Raises:
        SubletError: as the core has worded it.
    """
    for reply in replies:
        if isinstance(reply, Refuse):
            raise reply.error
