"""Plain messages from A2A clients that know nothing of workspaces: they go through the supervisor (DESIGN 1, 7)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from sublet.daemon.api.sessions import AskAnswer, AskOutput
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.ports.given_to_a2a import AskedBack
from sublet.daemon.supervising.asking import AdmittedRequest, AsksAgents
from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.request_rules import NOT_NARROWED, Narrowing
from sublet.protocol.chain import Chain
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.ids import context_session_id
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.supervisor_agent import ANSWER

_TOLD_AS_DECLINED = frozenset(
    {
        LocalCode.CONFLICT,
        LocalCode.SESSION_CLOSED,
        LocalCode.LOOP_REFUSED,
        LocalCode.DEPTH_REFUSED,
        LocalCode.LEASE_OVER,
        LocalCode.NO_ROUTE,
        LocalCode.INVALID_ARGUMENT,
    }
)
"""Codes whose words are for the client as well."""


class MessageAnswerer:
    """Implements ``MessageApi``: each client's context is a session of its own, which no other client reaches.

    Args:
        asking: brings requests to the supervisor.
        gate: asks policy.
        agents: those offered now.
        max_contexts: sessions of one client that are kept; the one that was used last is the last to go.
    """

    def __init__(
        self,
        asking: AsksAgents,
        gate: Gatekeeper,
        agents: Callable[[], Sequence[AgentConfig]],
        max_contexts: int = 1_000,
    ) -> None:
        self._asking = asking
        self._gate = gate
        self._agents = agents
        self._max_contexts = max_contexts

    async def answer(
        self,
        text: str,
        caller: Subject,
        *,
        context_id: str,
        owner: str,
        chain: Chain,
        answers: bool = False,
        narrowing: Narrowing = NOT_NARROWED,
    ) -> AsyncGenerator[str | AskedBack, None]:
        """Have the supervisor see to ``text``: ``MessageApi.answer``.

        Raises:
            SubletError: ``POLICY_DENIED``; ``DECLINED`` for want of an agent, a slot or a route, for a loop or a closed
                session; ``TASK_FAILED`` where the agent fails; ``UNAVAILABLE`` where the daemon stops.
        """
        agents = self._agents()
        if not agents:
            raise _nobody()
        if not self._asking.may_ask_somebody(caller):
            await self._gate.ask_for(caller, Action.AGENT_MESSAGE, Resource(agents[0].id), _nobody())
        await self._asking.make_room(owner, self._max_contexts)
        asked = AdmittedRequest(text, caller, owner, chain, {ANSWER: answers}, narrowing=narrowing)
        session_id = context_session_id(owner, context_id)
        told, dropped = False, 0
        updates = self._asking.ask(asked, session_id, {"contextId": context_id})
        try:
            async with aclosing(updates):
                async for update in updates:
                    if isinstance(update, AskOutput):
                        dropped += update.dropped_chars
                        if update.stream == "stdout" and update.text:
                            told = True
                            yield update.text
                    elif isinstance(update, AskAnswer):
                        if rest := _rest(update, told=told, dropped=dropped):
                            yield rest
                        if update.question:
                            yield AskedBack(update.question)
        except SubletError as error:
            if error.code not in _TOLD_AS_DECLINED:
                raise
            raise SubletError(ErrorCode.DECLINED, error.message, error.hint) from None


def _nobody() -> SubletError:
    return SubletError(ErrorCode.DECLINED, "no agent is offered here", "Offer one: sublet up --agent FILE")


def _rest(answer: AskAnswer, *, told: bool, dropped: int) -> str:
    """Return what no piece has told yet.

    Raises:
        SubletError: ``DECLINED`` where the request was rejected.
    """
    if answer.route_decision == "reject":
        raise SubletError(ErrorCode.DECLINED, answer.reason, "See the agent card for what is offered.")
    said = answer.result or ""
    if dropped:
        said = f"\n[{dropped} characters were not read in time and left out; the end was:]\n{said}"
    elif told:
        said = ""
    return "\n".join([said, *(f"[{warning}]" for warning in answer.warnings)]) if answer.warnings else said
