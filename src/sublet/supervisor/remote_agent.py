"""The provider ``a2a``: another agent, elsewhere, gets the prompt as text and answers with text (DESIGN 4.9)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

from sublet.protocol.errors import SubletError
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean
from sublet.supervisor.a2a_config import A2aConfig
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.job import Job, Outcome, Report
from sublet.supervisor.output import Capture, flushed_regularly
from sublet.supervisor.run_time import RunTime
from sublet.supervisor.tool_gate import ToolCall
from sublet.supervisor.tools import NETWORK_FETCH

MAX_SUMMARY_CHARS: Final = 8_000
MAX_ANSWER_CHARS: Final = 2_000_000
_CONTEXT = Pattern(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


@dataclass(frozen=True, slots=True)
class RemoteNews:
    """A piece of what the other agent says; ``context`` names the conversation there, once it is known."""

    text: str = ""
    context: str = ""


class RemoteAgents(Protocol):
    """Speaks with agents elsewhere; the daemon passes in what does."""

    def ask(
        self, target: A2aConfig, agent_id: str, job: Job, *, token: str, context: str | None
    ) -> AsyncGenerator[RemoteNews, None]:
        """Send the job's prompt and yield what is answered; closing the generator cancels the work there.

        Args:
            target: whom.
            agent_id: the agent of ours that asks; the message to a peer carries the chain of its calls.
            job: what is asked.
            token: bearer token for a URL; none is sent where it is empty.
            context: an earlier conversation to go on with.

        Raises:
            SubletError: it can't be reached, refuses, or fails.
        """


class RemoteAgentProvider:
    """Has another agent do the work. It sees nothing of the lent directories.

    Args:
        config: the agent, whose provider is of type ``a2a``.
        remote: speaks with agents elsewhere.
        environ: where the token comes from; by default the daemon's environment.
    """

    def __init__(self, config: AgentConfig, remote: RemoteAgents, environ: Mapping[str, str] | None = None) -> None:
        if not isinstance(config.provider, A2aConfig):
            raise TypeError(f"a provider of type {config.provider.type} is no agent elsewhere")
        self._config = config
        self._target = config.provider
        self._remote = remote
        self._environ = os.environ if environ is None else environ

    async def run(self, job: Job, report: Report) -> Outcome:
        """Ask the other agent and return how it ended; cancelling the call cancels the work there."""
        if (refused := await self._refused(job)) is not None:
            return Outcome("failed", "", detail=refused, launched=False)
        time = RunTime(job, self._config.timeout_seconds)
        answer = _Answer(Capture("stdout", report))
        outcome: Outcome | None = None
        try:
            async with flushed_regularly(answer.capture):
                with contextlib.suppress(TimeoutError):
                    async with time.limiting():
                        outcome = await self._ask(job, answer)
        finally:
            answer.capture.finish()
        summary = answer.summary()
        if outcome is None:
            detail = f"ended after {time.taken_seconds:.0f} s, when its time was over"
            outcome = Outcome("timeout", summary, detail=detail)
        return Outcome(
            outcome.reason,
            summary or outcome.summary,
            detail=outcome.detail,
            launched=answer.begun,
            provider_session_id=answer.context or None,
        )

    async def _ask(self, job: Job, answer: _Answer) -> Outcome:
        known = job.provider_session_id if self._config.resumes else None
        context = known if known is not None and _CONTEXT.fullmatch(known) else None
        token = self._environ.get(self._target.token_env or "", "")
        news = self._remote.ask(self._target, self._config.id, job, token=token, context=context)
        try:
            async with aclosing(news) as pieces:
                async for piece in pieces:
                    answer.take(piece)
                    if answer.chars > MAX_ANSWER_CHARS:
                        return Outcome("limit", "", detail=f"answered more than {MAX_ANSWER_CHARS:,} characters")
        except SubletError as error:
            return Outcome("failed", "", detail=f"{error.message}. {error.hint}".strip())
        return Outcome("done", "")

    async def _refused(self, job: Job) -> str | None:
        """Return why a URL may not be asked. A peer was paired by a person, and is named by one in ``agent.json``."""
        url = self._target.url
        if url is None:
            return None
        if job.gate is None:
            return "there is no gate that could be asked for its address, so nothing was sent"
        call = ToolCall(NETWORK_FETCH, {"url": url, "host": urlsplit(url).hostname or ""}, "a2a")
        verdict = await job.gate.ask(call)
        if not verdict.allowed:
            return f"policy does not let it call {url}: {verdict.reason}"
        await job.gate.ended(call)
        return None


class _Answer:
    """What has been said so far."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.context = ""
        self.chars = 0
        self.begun = False

    def take(self, piece: RemoteNews) -> None:
        """Take a piece."""
        self.begun = True
        self.context = piece.context if _CONTEXT.fullmatch(piece.context) else self.context
        self.chars += len(piece.text)
        self.capture.feed(piece.text.encode("utf-8", "replace"))

    def summary(self) -> str:
        """Return the end of it, cleaned."""
        return clean(self.capture.end(MAX_SUMMARY_CHARS), MAX_SUMMARY_CHARS).strip()
