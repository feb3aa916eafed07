"""What a provider gets, says on the way and gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from sublet.policy.request_rules import NOT_NARROWED, Narrowing
from sublet.protocol.canonical import JsonValue
from sublet.protocol.chain import Chain
from sublet.supervisor.guarded_process import ReadyGuard
from sublet.supervisor.tool_gate import ToolGate

Stream = Literal["stdout", "stderr", "note"]
EndReason = Literal["done", "failed", "timeout", "limit", "cancelled", "crashed"]


class Deadline:
    """When work has to end, on the loop's clock; it moves where the lease is extended while the work runs."""

    def __init__(self, at: float) -> None:
        self._at = at
        self._watchers: list[Callable[[float], None]] = []

    @property
    def at(self) -> float:
        """The time, as it is now."""
        return self._at

    def move(self, at: float) -> None:
        """Set another time and tell whoever watches."""
        self._at = at
        for watcher in list(self._watchers):
            watcher(at)

    @contextmanager
    def watched(self, watcher: Callable[[float], None]) -> Iterator[None]:
        """Call ``watcher`` with every new time meanwhile; it must not raise."""
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)


@dataclass(frozen=True, slots=True)
class JobResource:
    """A directory of a job, inside the mount."""

    name: str
    path: Path
    access_mode: Literal["ro", "rw"]


@dataclass(frozen=True, slots=True)
class Job:
    """One task for a provider.

    ``resources`` are the directories that are lent for it, the first of which is the one to work in, ``workspace``;
    ``access_mode`` is the widest of theirs. ``meta`` is the read-only directory beside them; ``scratch`` is private,
    writable and gone afterwards. ``remaining_seconds`` counts from the call, and where a ``deadline`` is given, that is
    when it ends and may move.
    """

    delegation_id: str
    description: str
    prompt: str
    access_mode: Literal["ro", "rw"]
    resources: Sequence[JobResource]
    meta: Path
    scratch: Path
    mount_point: Path
    remaining_seconds: float
    expires_at: str
    deadline: Deadline | None = None
    gate: ToolGate | None = field(kw_only=True)
    """Asked before every tool; a provider that governs tools does nothing without one. Nobody leaves it out unsaid."""
    provider_session_id: str | None = None
    """A session of the provider's to go on with; where it can't, it begins a new one, whose id the outcome then has."""
    answer_schema: Mapping[str, JsonValue] | None = None
    """JSON Schema of the answer, for a provider that can hold its model to it; the guardrail checks in any case."""
    chain: Chain = field(default_factory=Chain)
    """Who called whom until this job came; what the job calls in turn goes on with it (``protocol.chain``)."""
    narrowing: Narrowing = NOT_NARROWED
    """What whoever asked for the job leaves of what its agents may call."""
    guard: ReadyGuard | None = None
    """Started ahead for a provider that runs a program; whoever made the job closes it."""

    @property
    def workspace(self) -> Path:
        """The directory to work in."""
        return self.resources[0].path


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of what the provider printed; ``dropped_chars`` tells how much before it did not fit the bound."""

    stream: Stream
    text: str
    dropped_chars: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended. ``summary`` is the bounded, cleaned end of what the provider said.

    Of work that was not done it has what was said on both streams, as the reason is usually on the second.
    """

    reason: EndReason
    summary: str
    exit_code: int | None = None
    detail: str = ""
    launched: bool = True
    """Whether what does the work was started at all, as far as that can be told."""
    provider_session_id: str | None = None
    """The session that a later job can go on with."""

    def why(self) -> str:
        """Return in one line how it ended, for work that was not done."""
        if self.reason == "failed" and self.exit_code is not None:
            return f"the agent ended with exit code {self.exit_code}"
        if self.reason == "limit":
            return f"the agent {self.detail}"
        words = {"timeout": "ran out of time", "crashed": "crashed"}.get(self.reason, self.reason)
        return f"the agent {words}: {self.detail}" if self.detail else f"the agent {words}"


Report = Callable[[Output], None]


def on_the_way(report: Report) -> Report:
    """Return what reports the words of work whose answer is not yet the answer: as notes, since it may come again."""

    def told(output: Output) -> None:
        report(replace(output, stream="note" if output.stream == "stdout" else output.stream))

    return told


class Provider(Protocol):
    """Whatever does the work of an agent."""

    async def run(self, job: Job, report: Report) -> Outcome:
        """Do ``job``; cancelling the call ends everything the provider started before it returns."""


def runs_program(provider: Provider) -> bool:
    """Tell whether a provider runs a program under a guard, which is worth starting ahead."""
    return getattr(provider, "runs_program", False) is True
