"""What ``status`` tells beside addresses and counts: what holds agents, how services fare, what was set aside."""

from __future__ import annotations

import asyncio

from sublet.app.parts import Parts
from sublet.daemon.api.daemon import ServiceView
from sublet.daemon.config.daemon_config import DaemonConfig
from sublet.daemon.times import rfc3339
from sublet.disk.set_aside import SetAside
from sublet.protocol.errors import SubletError
from sublet.tasks import ServiceHealth
from sublet.workspace.requirements import require_sandbox


async def sandbox_shown(config: DaemonConfig) -> str:
    """Return what confines agents, which was tried and is not only wished for."""
    if config.unsandboxed:
        return "none: agents run unconfined"
    failure = await _sandbox_failure()
    return "bubblewrap" if failure is None else f"none that works, so no agent is started: {failure.message}"


async def enforced(config: DaemonConfig, parts: Parts) -> list[str]:
    """Return what holds the first agent; nothing does where it can't be started for want of a sandbox."""
    if not parts.offer.agents or (not config.unsandboxed and await _sandbox_failure() is not None):
        return []
    return sorted(parts.confinement(parts.offer.agents[0]).enforced)


async def _sandbox_failure() -> SubletError | None:
    """Return why this machine can't confine an agent, found by doing so."""
    try:
        await asyncio.to_thread(require_sandbox)
    except SubletError as error:
        return error
    return None


def service_view(health: ServiceHealth) -> ServiceView:
    """Return how a service fares."""
    failed_at = None if health.failed_at is None else rfc3339(health.failed_at)
    return ServiceView(
        name=health.name,
        state=health.state,
        restarts=health.restarts,
        last_error=health.last_error,
        failed_at=failed_at,
    )


def set_aside_lines(aside: SetAside) -> list[str]:
    """Return what the daemon could not use or remove, one line each."""
    lines = [
        f"{thing.what} was set aside: {thing.why}" + (f" ({thing.kept_as})" if thing.kept_as else "; it stays there")
        for thing in aside.told
    ]
    more = aside.count - len(lines)
    return [*lines, *([f"{more} more things were set aside before these"] if more else [])]
