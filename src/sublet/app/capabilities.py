"""Makes the capabilities of a daemon: which there are, what runs them, and what tells agents of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog

from sublet.app.governance import Governance
from sublet.app.ground import Ground
from sublet.daemon.modules.capabilities import CapabilityRegistry, CapabilityService
from sublet.supervisor.capabilities.runs import CapabilityRuns
from sublet.supervisor.capabilities.tool_source import CapabilityTools
from sublet.supervisor.launch import Sandbox
from sublet.supervisor.limits import Limiter

CAPABILITIES: Final = "capabilities"
"""Below the configuration directory; directories that are named in ``config.json`` count before it."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Their parts.

    Args:
        registry: which there are now.
        service: the operations on them.
        tools: what agents are offered of them.
    """

    registry: CapabilityRegistry
    service: CapabilityService
    tools: CapabilityTools


async def make_capabilities(ground: Ground, governance: Governance, sandbox: Sandbox, limiter: Limiter) -> Capabilities:
    """Read what there is; what can't be used is told, and no reason not to start.

    Args:
        ground: says where they lie, and is told what runs.
        governance: what stands before what a person may have to approve.
        sandbox: confines them.
        limiter: holds them to their limits.
    """
    may = governance.agent_calls.could_call
    registry = CapabilityRegistry([*ground.config.capability_dirs, ground.config_dir / CAPABILITIES])
    runs = CapabilityRuns(sandbox, ground.scratch_root, limiter)
    registry.use(await asyncio.to_thread(registry.read))
    for where, problem in registry.now.problems.items():
        log.warning("a capability can't be used", directory=where, problem=problem)
    return Capabilities(
        registry=registry,
        service=CapabilityService(governance.gate, governance.calls, registry, runs, ground.journal.events.tell),
        tools=CapabilityTools(lambda: registry.now, runs, ground.offer.capabilities_of, may),
    )
