"""The one face of every agent, whatever does its work (SuperAgent 5.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from sublet.policy.decision import Subject
from sublet.policy.guardrail.options import GuardOptions
from sublet.protocol.canonical import JsonValue
from sublet.protocol.chain import Chain
from sublet.protocol.documents import Document, Documented
from sublet.protocol.events import EventKeys, EventKind
from sublet.supervisor.job import Job, Outcome, Report
from sublet.supervisor.router.route import Route

Decision = Literal["direct_reply", "dispatch_agent", "dispatch_module", "ask_human", "reject"]


@dataclass(frozen=True, slots=True)
class AgentInitContext:
    """What an agent is told once, before its first call: the address ``agent@node`` under which it is known."""

    address: str


@dataclass(frozen=True, slots=True)
class UnifiedAgentInput:
    """What is asked of an agent.

    ``schema`` is the JSON Schema that its answer has to satisfy, where it is to be structured, and ``guard`` how that
    is seen to; ``metadata`` is what else came with the request, and grants nothing.
    """

    text: str
    schema: Mapping[str, JsonValue] | None = None
    guard: GuardOptions = field(default_factory=GuardOptions)
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)


class Emit(Protocol):
    """Journals an event of a run and returns its number, which later events name as their cause."""

    async def __call__(
        self, kind: EventKind, keys: EventKeys, data: Mapping[str, JsonValue], keeps: Sequence[Document] = ()
    ) -> int:
        """Journal the event before its effect, and with it what ``data`` refers to by digest."""


@dataclass(frozen=True, slots=True)
class AgentRunContext:
    """In which run it is asked: session, request, the chain that led here, and where to work.

    ``finger_session_id`` is empty where the work belongs to no session, as that of an assignment. ``chain`` is that of
    this call: those who called before, the last of whom calls now. ``job`` is made by whoever owns the directory: the
    assignment's mount, or a private scratch directory. ``subject`` is who is asked for when policy is.
    """

    finger_session_id: str
    request_id: str
    chain: Chain
    emit: Emit
    job: Job
    report: Report
    subject: Subject
    causation_id: int | None = None
    route_decision: str | None = None
    """What the supervisor has decided, where it did: of all that follows from it."""
    provider_session_id: str | None = None
    """The session of the provider that is gone on with, where there is one."""

    def keys(self, agent_id: str | None = None) -> EventKeys:
        """Return the key fields of an event of this run."""
        return EventKeys(
            finger_session_id=self.finger_session_id or None,
            agent_id=agent_id,
            provider_session_id=self.provider_session_id,
            request_id=self.request_id,
            route_decision=self.route_decision,
            causation_id=self.causation_id,
        )


@dataclass(frozen=True, slots=True)
class UnifiedAgentOutput:
    """What an agent answers.

    ``decision`` is how it came about; a worker's own answer is a ``direct_reply``. ``agent_id`` is who did the work.
    ``structured`` is the answer as JSON, where a schema was given and the guardrail let it pass.
    """

    text: str
    decision: Decision
    agent_id: str
    outcome: Outcome | None = None
    provider_session_id: str | None = None
    structured: JsonValue = None
    route: Route | None = None
    """How the supervisor has decided, where it did."""
    checked: Documented | None = None
    """How the guardrail let it pass, as the event of the call keeps it."""
    warnings: tuple[str, ...] = ()
    """What whoever reads the answer should know besides, such as that an earlier session was lost."""
    options: tuple[str, ...] = ()
    """Answers to choose between, where ``text`` is a question."""


@dataclass(frozen=True, slots=True)
class AgentHealth:
    """Whether an agent could work now, and what is missing where not."""

    ok: bool
    detail: str = ""


class UnifiedAgent(Protocol):
    """An agent: a worker, the supervisor, or a container of others."""

    @property
    def id(self) -> str:
        """Its id, as ``agent.json`` names it."""

    @property
    def role(self) -> str:
        """What it is for, as ``agent.json`` says; policy has a layer of rules for each role."""

    @property
    def provider(self) -> str:
        """What kind of provider does its work."""

    async def initialize(self, ctx: AgentInitContext) -> None:
        """Get ready; called once, before anything else."""

    async def handle(self, request: UnifiedAgentInput, ctx: AgentRunContext) -> UnifiedAgentOutput:
        """Do what is asked. Cancelling the call ends everything that it started.

        Raises:
            SubletError: it could not be done, with the code of the reason.
        """

    async def health(self) -> AgentHealth:
        """Tell whether it could work now, in at most a few seconds."""

    async def shutdown(self) -> None:
        """End whatever it holds."""
