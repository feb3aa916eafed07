"""The daemon at a glance: where it is reached, what holds agents, how services fare, what its owner should know."""

from __future__ import annotations

import asyncio
import os
import time
from importlib.metadata import version
from urllib.parse import urlsplit

from sublet.app.areas import Areas
from sublet.daemon.api.daemon import ServiceView, StatusView
from sublet.daemon.approvals.views import approver_remarks
from sublet.daemon.config.daemon_config import DaemonConfig
from sublet.daemon.health.stalls import Stalls
from sublet.daemon.net.last_ports import LastPorts
from sublet.daemon.peering.peers import name_remark
from sublet.daemon.times import rfc3339
from sublet.disk.set_aside import SetAside
from sublet.protocol.errors import SubletError
from sublet.supervisor.readiness import unready_lines
from sublet.tasks import ServiceHealth
from sublet.workspace.requirements import require_sandbox


class Status:
    """Tells how one daemon is.

    Args:
        areas: what it consists of.
        stalls: how long its event loop has stood still.
    """

    def __init__(self, areas: Areas, stalls: Stalls) -> None:
        self._areas = areas
        self._stalls = stalls
        self._started = time.time()

    async def view(self) -> StatusView:
        """Return the daemon at a glance."""
        areas, ground = self._areas, self._areas.ground
        config, home, messaging = ground.config, ground.config.home, areas.rooms.messaging
        host, port = areas.lending.data_plane.address
        return StatusView(
            pid=os.getpid(),
            version=version("sublet"),
            home=home.root,
            node_id=ground.identity.node_id,
            fingerprint=ground.identity.fingerprint,
            a2a_url=ground.places.a2a.address,
            sftp=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            web=ground.places.web_page(),
            control_socket=ground.places.control.address,
            started_at=rfc3339(self._started),
            uptime_seconds=int(time.time() - self._started),
            peers=len(areas.peering.peers.list()),
            delegations=await ground.journal.count_delegations(),
            assignments_active=areas.agents.slots.in_use,
            slots=areas.agents.slots.capacity,
            tasks=len(asyncio.all_tasks()),
            agents=ground.offer.ids(),
            sandbox=await _sandbox_shown(config),
            bus=ground.bus_port.shown,
            ezagent_level=await messaging.level(),
            limits=areas.agents.cages.means,
            mount_guard=areas.working.mounts.guard,
            enforced=await self._enforced(),
            config_dir=home.config_dir,
            state_dir=home.state_dir,
            remarks=[
                *await self._remarks(),
                *approver_remarks(areas.governance.approver.pinned),
                *messaging.remarks(),
            ],
            services=[_service_view(one) for one in ground.services.health],
            stalls=self._stalls.newest,
            stall_count=self._stalls.count,
        )

    def ports(self) -> LastPorts:
        """Return the ports that are listened on; behind a public address the A2A port is the configured one."""
        ground, page = self._areas.ground, self._areas.ground.places.web_page()
        return LastPorts(
            a2a=None if ground.config.public_url else ground.places.a2a_port(),
            sftp=self._areas.lending.data_plane.address[1],
            web=urlsplit(page).port if page else ground.last_ports.web,
            bus=ground.bus_port.number,
        )

    async def _remarks(self) -> list[str]:
        """Return what is not as its owner may expect: peers know the default ports, unless they were told others."""
        ground, upkeep = self._areas.ground, self._areas.upkeep
        config, page, bus = ground.config, ground.places.web_page(), ground.config.bus.listen
        listening = [
            ("A2A", config.a2a, ground.places.a2a_port()),
            ("SFTP", config.sftp, self._areas.lending.data_plane.address[1]),
        ]
        if config.web is not None and page:
            listening.append(("web", config.web, urlsplit(page).port))
        ports = [
            f"the default {name} port {wanted.port} is taken by another program, so it is {port} until the next start"
            for name, wanted, port in listening
            if port is not None and not wanted.chosen and port != wanted.port
        ]
        if not bus.chosen and ground.bus_port.number not in (None, bus.port):
            # The one that peers know goes before the default, also where that is free again.
            number = ground.bus_port.number
            ports.append(f"the bus of rooms is at port {number}, since the default {bus.port} was taken")
        watching = upkeep.watcher.remarks if upkeep.watcher is not None else []
        # Another name than expected is what a newcomer chose badly, or an attempt to be taken for somebody.
        names = [name_remark(peer) for peer in self._areas.peering.peers.list() if peer.note]
        unready = await asyncio.to_thread(unready_lines, ground.offer.now())
        return [*ports, *unready, *upkeep.reloader.remarks, *watching, *names, *_set_aside_lines(ground.aside)]

    async def _enforced(self) -> list[str]:
        """Return what holds the first agent; nothing does where it can't be started for want of a sandbox."""
        offered = self._areas.ground.offer.agents
        if not offered or (not self._areas.ground.config.unsandboxed and await _sandbox_failure() is not None):
            return []
        return sorted(self._areas.agents.confinement(offered[0]).enforced)


async def _sandbox_shown(config: DaemonConfig) -> str:
    """Return what confines agents, which was tried and is not only wished for."""
    if config.unsandboxed:
        return "none: agents run unconfined"
    failure = await _sandbox_failure()
    return "bubblewrap" if failure is None else f"none that works, so no agent is started: {failure.message}"


async def _sandbox_failure() -> SubletError | None:
    """Return why this machine can't confine an agent, found by doing so."""
    try:
        await asyncio.to_thread(require_sandbox)
    except SubletError as error:
        return error
    return None


def _service_view(health: ServiceHealth) -> ServiceView:
    failed_at = None if health.failed_at is None else rfc3339(health.failed_at)
    return ServiceView(
        name=health.name,
        state=health.state,
        restarts=health.restarts,
        last_error=health.last_error,
        failed_at=failed_at,
    )


def _set_aside_lines(aside: SetAside) -> list[str]:
    """Return what the daemon could not use or remove, one line each."""
    lines = [
        f"{thing.what} was set aside: {thing.why}" + (f" ({thing.kept_as})" if thing.kept_as else "; it stays there")
        for thing in aside.told
    ]
    more = aside.count - len(lines)
    return [*lines, *([f"{more} more things were set aside before these"] if more else [])]
