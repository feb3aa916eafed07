"""Has the supervisor see to requests that policy has admitted, whoever brought them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from pydantic import JsonValue

from sublet.daemon.api.sessions import AskAnswer, AskBegun, AskOutput
from sublet.daemon.supervising.runs import Runs
from sublet.policy.decision import Subject
from sublet.policy.guardrail.options import GuardOptions
from sublet.policy.request_rules import NOT_NARROWED, Narrowing
from sublet.protocol.chain import Chain
from sublet.protocol.errors import SubletError
from sublet.protocol.events import EventKeys
from sublet.protocol.ids import new_request_id, new_session_id
from sublet.supervisor.agent import AgentRunContext, Emit, UnifiedAgentInput, UnifiedAgentOutput
from sublet.supervisor.dispatch import Dispatcher
from sublet.supervisor.job import Job, Output, Report
from sublet.supervisor.sessions.control import SessionControl
from sublet.supervisor.supervisor_agent import SupervisorAgent

MAX_TITLE_CHARS: Final = 80
OWNER: Final = "human"
"""Who a session of this machine's person belongs to."""

Told = AskBegun | AskOutput | AskAnswer


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """A request as it was admitted.

    Args:
        text: what is asked.
        subject: who asks, for policy.
        owner: whose session it may go on with.
        chain: who called until here, where another agent did.
        metadata: how the supervisor is to take it.
        schema: JSON Schema of the answer.
        guard: how that is seen to.
        narrowing: what is left of what the agents may call.
    """

    text: str
    subject: Subject
    owner: str = OWNER
    chain: Chain = field(default_factory=Chain)
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    schema: Mapping[str, JsonValue] | None = None
    guard: GuardOptions = field(default_factory=GuardOptions)
    narrowing: Narrowing = NOT_NARROWED


class AsksAgents(Protocol):
    """Brings requests to the supervisor, as whoever has admitted them needs it."""

    def may_ask_somebody(self, caller: Subject) -> bool:
        """Tell whether policy lets ``caller`` ask any agent that is offered."""

    async def make_room(self, owner: str, keep: int) -> None:
        """Forget sessions that ``owner`` used the longest ago, so that one more makes at most ``keep``."""

    def ask(
        self, asked: AdmittedRequest, session_id: str | None, metadata: Mapping[str, JsonValue] | None = None
    ) -> AsyncGenerator[Told, None]:
        """Have the supervisor see to a request that policy has admitted: as the operation ``ASK``.

        Args:
            asked: the request.
            session_id: the session to go on with; one that is not there is begun where ``metadata`` is given.
            metadata: of a session that is begun under that id.

        Raises:
            SubletError: ``NOT_FOUND``, ``SESSION_CLOSED``, ``UNAVAILABLE``, or what the work fails with.
        """


class Asking:
    """Implements ``AsksAgents``.

    Args:
        supervisor: sees to requests.
        sessions: of which each request is a turn.
        dispatcher: refuses chains that are too long, or a loop.
        runs: the daemon's work.
        lease_seconds: how long a request may take.
        emit: is told what happens.
    """

    def __init__(
        self,
        supervisor: SupervisorAgent,
        sessions: SessionControl,
        dispatcher: Dispatcher,
        runs: Runs,
        lease_seconds: float,
        emit: Emit,
    ) -> None:
        self._supervisor = supervisor
        self._sessions = sessions
        self._dispatcher = dispatcher
        self._runs = runs
        self._lease_seconds = lease_seconds
        self._emit = emit

    def may_ask_somebody(self, caller: Subject) -> bool:
        """``AsksAgents.may_ask_somebody``."""
        return not all(one.denied for one in self._supervisor.candidates(caller))

    async def make_room(self, owner: str, keep: int) -> None:
        """``AsksAgents.make_room``."""
        await self._sessions.make_room(owner, keep)

    async def ask(
        self, asked: AdmittedRequest, session_id: str | None, metadata: Mapping[str, JsonValue] | None = None
    ) -> AsyncGenerator[Told, None]:
        """``AsksAgents.ask``."""
        self._dispatcher.check(None, asked.chain)
        keys = EventKeys(request_id=new_request_id())
        request_id = keys.request_id or ""
        if session_id is not None and metadata is None:
            await self._sessions.for_input(session_id, asked.owner)
        in_session = session_id or new_session_id()
        yield AskBegun(finger_session_id=in_session, request_id=request_id)

        async def work(job: Job, report: Report) -> UnifiedAgentOutput:
            async with self._sessions.turn(in_session):
                if session_id is None or metadata is not None:
                    await self._begin(in_session, asked, keys, metadata)
                # Again, since it may have been paused while this request waited for its turn.
                await self._sessions.for_input(in_session, asked.owner)
                ctx = AgentRunContext(
                    finger_session_id=in_session,
                    request_id=request_id,
                    chain=asked.chain,
                    emit=self._emit,
                    job=replace(job, narrowing=asked.narrowing),
                    report=report,
                    subject=asked.subject,
                )
                return await self._supervisor.handle(
                    UnifiedAgentInput(asked.text, asked.schema, asked.guard, asked.metadata), ctx
                )

        told = self._runs.run(asked.text, asked.chain, self._lease_seconds, work)
        async with aclosing(told) as pieces:
            async for piece in pieces:
                if isinstance(piece, Output):
                    yield AskOutput(stream=piece.stream, text=piece.text, dropped_chars=piece.dropped_chars)
                else:
                    yield _answer(piece, in_session, request_id)

    async def _begin(
        self, session_id: str, asked: AdmittedRequest, keys: EventKeys, metadata: Mapping[str, JsonValue] | None
    ) -> None:
        """Begin the session, unless it is there already."""
        title = asked.text.strip().partition("\n")[0][:MAX_TITLE_CHARS]
        try:
            await self._sessions.create(
                title=title, owner=asked.owner, session_id=session_id, metadata=dict(metadata or {}), keys=keys
            )
        except SubletError as error:
            if error.code != "CONFLICT":
                raise


def _answer(output: UnifiedAgentOutput, session_id: str, request_id: str) -> AskAnswer:
    route = output.route
    asks, rejects = output.decision == "ask_human", output.decision == "reject"
    return AskAnswer(
        finger_session_id=session_id,
        request_id=request_id,
        route_decision=output.decision,
        target=route.target if route else "",
        confidence=route.confidence if route else 1,
        reason=route.reason if route else "",
        result=None if asks or rejects else output.text,
        question=output.text if asks else None,
        options=list(route.options) if route and asks else [],
        agent_id=None if asks or rejects else output.agent_id,
        provider_session_id=output.provider_session_id,
        structured=output.structured,
        warnings=list(output.warnings),
    )
