"""Reads agents, policy and modules anew, and puts them in force together; what is bad changes nothing, loudly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from sublet.daemon.api.daemon import ReloadReport
from sublet.daemon.modules.capabilities import CapabilityRegistry
from sublet.daemon.modules.gateways import Gateways
from sublet.daemon.supervising.agent_source import AgentSource
from sublet.daemon.supervising.offer import Offering
from sublet.policy.engine import Policy, Prepared
from sublet.policy.rules import Rule
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import SubletError
from sublet.protocol.events import EventKeys, EventKind
from sublet.protocol.text import clean_line
from sublet.supervisor.agent import Emit
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.capabilities.registry import CapabilitySet
from sublet.supervisor.gateways.module_file import GatewaySet, read_gateways

MAX_REASON_CHARS: Final = 500

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Read:
    """All files as they were at one moment."""

    agents: tuple[AgentConfig, ...]
    policy: Prepared
    capabilities: CapabilitySet
    gateways: GatewaySet


class Reloader:
    """Puts files in force.

    Args:
        source: where agents come from.
        offering: offers them.
        policy: decides.
        policy_file: its file.
        rules_of: makes rules of agents.
        capabilities: the registry.
        gateways: those that run.
        in_force: is called once all of it is in force.
        tell: journals what became of it.
        notify: shows a person a title and a text.
    """

    def __init__(
        self,
        source: AgentSource,
        offering: Offering,
        policy: Policy,
        policy_file: Path,
        rules_of: Callable[[tuple[AgentConfig, ...]], tuple[Rule, ...]],
        capabilities: CapabilityRegistry,
        gateways: Gateways,
        in_force: Callable[[], None],
        tell: Emit,
        notify: Callable[[str, str], None],
    ) -> None:
        self.source = source
        self.policy_file = policy_file
        self.capabilities = capabilities
        self.module_roots = (*capabilities.directories, gateways.root)
        self._gateways = gateways
        self._offering = offering
        self._offer = offering.offer
        self._policy = policy
        self._rules_of = rules_of
        self._in_force = in_force
        self._tell = tell
        self._notify = notify
        self._one_at_a_time = asyncio.Lock()
        self._rejected = ""
        self._policy_seen = False
        self._policy_gone = False

    @property
    def remarks(self) -> list[str]:
        """What a person should know: that a file is not in force as it stands, or is gone."""
        found = [f"not in force, as it can't be used: {self._rejected}"] if self._rejected else []
        if self._policy_gone:
            found.append(f"the default rules hold: {self.policy_file} is gone")
        if not self._offer.agents:
            found.append(f"no agent is offered: {self.source.file} {'is gone' if self.source.gone else 'has none'}")
        problems = self.capabilities.now.problems
        return [*found, *(f"capability {Path(where).name}: {what}" for where, what in sorted(problems.items())[:5])]

    async def reload(self, *, only_if_changed: bool = False) -> ReloadReport:
        """Put everything in force as it is now, or nothing where one file is bad.

        Args:
            only_if_changed: whether nothing is told where all is as it was.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` naming file and place.
        """
        async with self._one_at_a_time:
            try:
                read = await asyncio.to_thread(self._read)
                offered = self._offer.agents
                self._offering.use(read.agents)
            except SubletError as error:
                await self._reject(error)
                raise
            before = (offered, self._policy.rules, self._policy.limits, self.capabilities.now)
            # Nothing waits between these, so that nobody ever meets one file's new and another's old state.
            self._policy.use(read.policy)
            self._policy_gone = self._policy_seen and not read.policy.config.from_file
            self._policy_seen = self._policy_seen or read.policy.config.from_file
            self.capabilities.use(read.capabilities)
            self._in_force()
            gateways_changed = await self._gateways.use(read.gateways)
            after = (read.agents, self._policy.rules, self._policy.limits, read.capabilities)
            changed = before != after or gateways_changed or bool(self._rejected)
            self._rejected = ""
            report = ReloadReport(
                agents=[agent.id for agent in read.agents],
                policy_file=str(self.policy_file),
                agent_file=str(self.source.file),
            )
            if only_if_changed and not changed:
                return report
            log.info("configuration is in force as it is now", agents=report.agents)
            told: dict[str, JsonValue] = {
                "agents": [*report.agents],
                "capabilitySnapshotVersion": read.capabilities.version,
                "problems": [clean_line(f"{where}: {what}") for where, what in read.capabilities.problems.items()],
            }
            await self._tell(EventKind.CONFIG_RELOADED, EventKeys(), told)
            return report

    def _read(self) -> _Read:
        agents = self._offering.read()
        return _Read(
            agents,
            self._policy.prepare(self._rules_of(agents)),
            self.capabilities.read(),
            read_gateways(self._gateways.root),
        )

    async def _reject(self, error: SubletError) -> None:
        reason = clean_line(error.message, MAX_REASON_CHARS)
        log.error("configuration was not taken; what held before goes on to hold", reason=reason)
        if reason == self._rejected:
            return
        self._rejected = reason
        self._notify("Sublet: a configuration file can't be used", reason)
        await self._tell(EventKind.CONFIG_REJECTED, EventKeys(), {"reason": reason, "hint": clean_line(error.hint)})
