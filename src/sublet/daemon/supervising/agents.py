"""The agents of this daemon behind their one interface, made anew where ``agent.json`` says something else of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio

from sublet.protocol.chain import address
from sublet.supervisor.agent import AgentInitContext, AgentRunContext, UnifiedAgent
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.agent_questions import AgentQuestions
from sublet.supervisor.dispatch import Dispatcher
from sublet.supervisor.job import Provider
from sublet.supervisor.provider_config import SuperConfig
from sublet.supervisor.sessions.control import SessionControl
from sublet.supervisor.super_agent import SuperAgent
from sublet.supervisor.tool_gate import ToolGate
from sublet.supervisor.worker import WorkerAgent

GateMaker = Callable[[AgentConfig, AgentRunContext], ToolGate]


class AgentSet:
    """Finds agents by their ids.

    Args:
        node_id: of this daemon.
        configs: those offered now.
        provider: what does the work of one.
        sessions: where bindings are kept.
        dispatcher: makes what carries calls to agents, given how one is found.
        gate: makes what stands before the tools of one agent in one run; None where no tool is governed.
        questions: takes what agents ask a person.
    """

    def __init__(
        self,
        node_id: str,
        configs: Callable[[], Sequence[AgentConfig]],
        provider: Callable[[str], Provider],
        sessions: SessionControl,
        dispatcher: Callable[[Callable[[str], Awaitable[UnifiedAgent | None]]], Dispatcher],
        gate: GateMaker | None,
        questions: AgentQuestions | None,
    ) -> None:
        self._questions = questions
        self._node_id = node_id
        self._configs = configs
        self._provider = provider
        self._sessions = sessions
        self.dispatcher = dispatcher(self.find)
        """Calls these agents; super agents among them call others by it."""
        self._gate = gate
        self._made: dict[str, tuple[AgentConfig, UnifiedAgent]] = {}
        self._making = anyio.Lock()

    async def find(self, agent_id: str) -> UnifiedAgent | None:
        """Return the agent of that id, ready for work, or None where none is offered."""
        config = next((one for one in self._configs() if one.id == agent_id), None)
        if config is None:
            return None
        async with self._making:
            known = self._made.get(agent_id)
            if known is not None and known[0] == config:
                return known[1]
            if known is not None:
                await known[1].shutdown()
            agent = self._make(config)
            await agent.initialize(AgentInitContext(address(agent_id, self._node_id)))
            self._made[agent_id] = (config, agent)
            return agent

    async def aclose(self) -> None:
        """Shut all of them down."""
        for _, agent in self._made.values():
            await agent.shutdown()
        self._made.clear()

    def _make(self, config: AgentConfig) -> UnifiedAgent:
        if isinstance(config.provider, SuperConfig):
            return SuperAgent(config, self.dispatcher)
        return WorkerAgent(config, lambda: self._provider(config.id), self._sessions, self._gate, self._questions)
