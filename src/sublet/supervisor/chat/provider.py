"""The provider ``model``: asks a chat model, makes the calls that it asks for, until it answers (DESIGN 4.9)."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol

import anyio
import structlog

from sublet.policy.guardrail.schema import CheckedSchema
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import SubletError
from sublet.protocol.text import clean
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.chat.budget import Budget
from sublet.supervisor.chat.calls import MAX_BAD_CALLS, Calls
from sublet.supervisor.chat.conversation import Conversation
from sublet.supervisor.chat.conversations import Conversations, new_conversation_id
from sublet.supervisor.chat.endpoint import ContextTooLong, Endpoint, EndpointFailed
from sublet.supervisor.chat.file_tools import FileTools
from sublet.supervisor.chat.mcp_tools import McpTools
from sublet.supervisor.chat.prompt import system_prompt
from sublet.supervisor.chat.reply import Reply
from sublet.supervisor.chat.shell_tool import shell_tool
from sublet.supervisor.chat.tool import Tool, ToolFailed, ToolResult
from sublet.supervisor.confined_runs import ConfinedRuns, LimitMet
from sublet.supervisor.governance_config import command_namespace
from sublet.supervisor.job import Job, Outcome, Output, Report
from sublet.supervisor.launch import Sandbox
from sublet.supervisor.lease_files import OpenFiles
from sublet.supervisor.limits import Limiter
from sublet.supervisor.model_config import ModelConfig
from sublet.supervisor.output import Capture, flushed_regularly
from sublet.supervisor.processes import ProcessOwners
from sublet.supervisor.run_time import RunTime
from sublet.supervisor.tool_gate import ToolCall, ToolGate
from sublet.supervisor.tool_server.names import NamedOffer, named
from sublet.supervisor.tools import ToolSource

MAX_SUMMARY_CHARS: Final = 8_000
MAX_SHRINKS: Final = 4
"""How often the context is halved because the endpoint says that it can't take it."""
STOPPED: Final = "[It was not done: the task was ended first.]"
_NO_GATE: Final = "there is no gate that its tools could be asked for, so nothing was done"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ModelTools:
    """What the daemon gives a model's provider: the files of a lease, what confines programs, and memory."""

    files: OpenFiles
    sandbox: Sandbox
    conversations: Conversations
    limiter: Limiter | None = None
    owners: ProcessOwners | None = None
    source: ToolSource | None = None
    """Tools besides our own, such as capabilities; the gate is asked for each as for those."""


class MakeEndpoint(Protocol):
    """Makes what is asked; tests make it with shorter waits."""

    def __call__(self, config: ModelConfig, key: str) -> Endpoint:
        """Return the endpoint of a model that is called with ``key``."""


class ModelProvider:
    """Works on jobs by a chat model.

    Args:
        config: the agent, whose provider is of type ``model``.
        tools: what the daemon gives.
        environ: where the key and the variables of programs come from; by default the daemon's environment.
        endpoint: makes what is asked.
    """

    def __init__(
        self,
        config: AgentConfig,
        tools: ModelTools,
        environ: Mapping[str, str] | None = None,
        *,
        endpoint: MakeEndpoint = Endpoint,
    ) -> None:
        if not isinstance(config.provider, ModelConfig):
            raise TypeError(f"a provider of type {config.provider.type} is no model")
        self._config = config
        self._model = config.provider
        self._tools = tools
        self._environ = dict(os.environ if environ is None else environ)
        self._endpoint = endpoint
        self._own = tools.owners.of(config) if tools.owners is not None else None

    async def run(self, job: Job, report: Report) -> Outcome:
        """Work on ``job`` and return how it ended.

        Time is limited by the lease and by the agent's own limit. Cancelling the call ends the request and every
        program before it returns; what was said until then is kept for a later job that names the session.
        """
        if job.gate is None:
            return Outcome("failed", "", detail=_NO_GATE, launched=False)
        time = RunTime(job, self._config.timeout_seconds)
        session, conversation = await self._conversation(job, report)
        capture = Capture("stdout", report)
        work = _Work(self._model, conversation, job, capture, report, time)
        outcome: Outcome | None = None
        try:
            with contextlib.suppress(TimeoutError):
                async with time.limiting():
                    outcome = await self._work(work, job, job.gate, report, capture)
        finally:
            capture.finish()
            conversation.close_calls(STOPPED)
            with anyio.CancelScope(shield=True):
                kept = await self._keep(session, conversation)
        report(Output("note", f"\nUsed {work.budget.told()}.\n"))
        if outcome is None:
            detail = f"ended after {time.taken_seconds:.0f} s, when its time was over"
            outcome = Outcome("timeout", work.said, detail=detail)
        return replace(outcome, provider_session_id=session if kept else None)

    async def _work(self, work: _Work, job: Job, gate: ToolGate, report: Report, capture: Capture) -> Outcome:
        """Do it, with what has to be ended afterwards."""
        key = ""
        if self._model.api_key_env is not None:
            key = self._environ.get(self._model.api_key_env, "")
            if not key:
                detail = f"the daemon's environment has no {self._model.api_key_env}, which is to hold the model's key"
                return Outcome("failed", "", detail=detail, launched=False)
        async with self._offered(job, gate, report) as tools, self._endpoint(self._model, key) as endpoint:
            system = system_prompt(job, tools, self._model.instructions)
            calls = Calls(tools, gate, work.note)
            async with flushed_regularly(capture):
                try:
                    return await work.until_answered(endpoint, system, [tool.offered() for tool in tools], calls)
                except LimitMet as met:
                    return Outcome("limit", work.said, detail=str(met))

    @asynccontextmanager
    async def _offered(self, job: Job, gate: ToolGate, report: Report) -> AsyncIterator[list[Tool]]:
        """Open what the tools work with, and close it at the end."""
        files = self._tools.files(job)
        runs = ConfinedRuns(self._config, job, self._tools.sandbox, self._environ, self._tools.limiter, self._own)
        try:
            tools = FileTools(job, files, gate).tools()
            if self._config.sandbox.allow_exec:
                tools.append(shell_tool(runs))
            async with McpTools(self._config.mcp_servers, runs, self._environ) as servers:
                for failure in servers.failures:
                    report(Output("note", f"{failure}\n"))
                yield [*tools, *servers.tools, *self._sourced(job)]
        finally:
            with anyio.CancelScope(shield=True):
                await runs.close()
                await files.aclose()

    def _sourced(self, job: Job) -> list[Tool]:
        """Return the tools of the source that this agent is told of."""
        source = self._tools.source
        if source is None:
            return []
        offers = named(source.offers(self._config.id), command_namespace(self._config.governance))
        return [_sourced(source, one, job, self._config.id) for one in offers.values()]

    async def _conversation(self, job: Job, report: Report) -> tuple[str, Conversation]:
        """Return the session to go on with, or a new one."""
        asked = job.provider_session_id
        if asked is not None and self._config.resumes:
            found = await asyncio.to_thread(self._tools.conversations.load, asked, self._config.id)
            if found is not None:
                return asked, Conversation(found)
            report(Output("note", "The earlier conversation can't be gone on with; this is a new one.\n"))
        return new_conversation_id(), Conversation()

    async def _keep(self, session: str, conversation: Conversation) -> bool:
        try:
            return await asyncio.to_thread(
                self._tools.conversations.save, session, self._config.id, conversation.messages
            )
        except OSError as error:
            log.error("a conversation can't be kept", reason=error.strerror)
            return False


class _Work:
    """One task: request after request, until the model answers or a bound is met."""

    def __init__(
        self,
        config: ModelConfig,
        conversation: Conversation,
        job: Job,
        capture: Capture,
        report: Report,
        time: RunTime,
    ) -> None:
        self.budget = Budget(config)
        self.said = ""
        self._conversation = conversation
        self._job = job
        self._capture = capture
        self._report = report
        self._time = time
        self._context = config.context_tokens

    def note(self, text: str) -> None:
        """Tell people what happens, after what was said before it."""
        self._capture.flush()
        self._report(Output("note", f"{text}\n"))

    async def until_answered(
        self, endpoint: Endpoint, system: str, tools: Sequence[JsonValue], calls: Calls
    ) -> Outcome:
        """Ask and call until the model answers without a call."""
        self._conversation.ask(self._job.prompt)
        while True:
            if (met := self.budget.met()) is not None:
                return Outcome("limit", self.said, detail=met)
            try:
                reply = await self._ask(endpoint, system, tools)
            except EndpointFailed as failure:
                return Outcome("failed", self.said, detail=str(failure), launched=self.budget.steps > 0)
            if reply is None:
                detail = f"has more to keep in mind than fits into {self._context:,} tokens (context_tokens)"
                return Outcome("limit", self.said, detail=detail)
            if reply.text:
                self.said = clean(reply.text[-MAX_SUMMARY_CHARS:], MAX_SUMMARY_CHARS).strip()
                self._capture.feed(b"" if reply.text.endswith("\n") else b"\n")
            asked = self._conversation.answered(reply)
            if not asked:
                return self._answer(reply)
            for call in asked:
                self._conversation.result(call.id, await calls.make(call))
                if calls.bad >= MAX_BAD_CALLS:
                    detail = f"the model has made {calls.bad} calls in a row that can't be read"
                    return Outcome("failed", self.said, detail=detail)

    async def _ask(self, endpoint: Endpoint, system: str, tools: Sequence[JsonValue]) -> Reply | None:
        """Return the model's answer; None where the conversation can't be made to fit.

        Raises:
            EndpointFailed: there is none.
        """
        conversation = self._conversation
        for _ in range(MAX_SHRINKS):
            if not conversation.fit(system, tools, self._context):
                return None
            try:
                reply = await endpoint.ask(
                    [{"role": "system", "content": system}, *conversation.messages],
                    tools,
                    said=lambda text: self._capture.feed(text.encode("utf-8", "replace")),
                    note=self.note,
                    until=self._time.ends,
                    schema=self._job.answer_schema,
                )
            except ContextTooLong:
                self._context = min(self._context, conversation.estimate(system, tools).prompt_tokens) // 2
                continue
            self.budget.spend(reply.usage, conversation.estimate(system, tools, reply))
            conversation.calibrate(system, tools, reply.usage)
            return reply
        return None

    def _answer(self, reply: Reply) -> Outcome:
        if reply.finish == "length":
            return Outcome("limit", self.said, detail="was cut off in its answer by its endpoint's bound")
        if reply.finish == "content_filter":
            return Outcome("failed", self.said, detail="the endpoint's filter has cut the model's answer off")
        return Outcome("done", self.said)


def _sourced(source: ToolSource, named: NamedOffer, job: Job, agent_id: str) -> Tool:
    offer = named.offer

    async def run(arguments: Mapping[str, JsonValue]) -> ToolResult:
        try:
            answered = await source.call(ToolCall(offer.tool, arguments, ""), job, agent_id)
        except SubletError as error:
            raise ToolFailed(str(error)) from None
        if answered.error is not None:
            raise ToolFailed(answered.text)
        return ToolResult(answered.text)

    return Tool(offer.tool, offer.description, CheckedSchema(offer.parameters), run, wire=named.name)
