"""Makes the modules' parts of a daemon: capabilities, and what runs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from sublet.daemon.api.call_api import CallApi
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.modules.capabilities import CapabilityRegistry, CapabilityService
from sublet.daemon.storage.journal import Journal
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import EventKeys, EventKind
from sublet.supervisor.capabilities.runs import CapabilityRuns
from sublet.supervisor.capabilities.tool_source import CapabilityTools
from sublet.supervisor.limits import Limiter
from sublet.supervisor.model import Sandbox

CAPABILITIES: Final = "capabilities"
"""Below the configuration directory."""

log = structlog.get_logger(__name__)


class Modules:
    """The modules of one daemon.

    Args:
        config_dir: below which they lie.
        more: further directories of capabilities, which count before.
        scratch_root: below which runs have their directories.
        sandbox: confines them.
        limiter: holds them to their limits.
        gate: asks policy.
        calls: stands before what a person may have to approve.
        journal: is told what runs.
        chosen: returns the ids of those that an agent is told of; None for all.
        may: tells whether an agent could be let to call a tool.
    """

    def __init__(
        self,
        config_dir: Path,
        more: tuple[Path, ...],
        scratch_root: Path,
        sandbox: Sandbox,
        limiter: Limiter,
        gate: Gatekeeper,
        calls: CallApi,
        journal: Journal,
        chosen: Callable[[str], tuple[str, ...] | None],
        may: Callable[[str, str], bool],
    ) -> None:
        self._journal = journal
        self.registry = CapabilityRegistry([*more, config_dir / CAPABILITIES])
        self.runs = CapabilityRuns(sandbox, scratch_root, limiter)
        self.service = CapabilityService(gate, calls, self.registry, self.runs, self._tell)
        self.tools = CapabilityTools(lambda: self.registry.now, self.runs, chosen, may)

    async def load(self) -> None:
        """Read what there is at the start; what can't be used is told, and no reason not to start."""
        self.registry.use(await asyncio.to_thread(self.registry.read))
        for where, problem in self.registry.now.problems.items():
            log.warning("a capability can't be used", directory=where, problem=problem)

    async def _tell(self, kind: EventKind, data: Mapping[str, JsonValue], keys: EventKeys) -> int:
        return (await self._journal.append_event(kind, None, dict(data), keys=keys)).seq
