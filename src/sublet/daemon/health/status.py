"""The daemon at a glance: where it is reached, what holds agents, how services fare, what its owner should know."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from urllib.parse import urlsplit

from sublet.daemon.api.daemon import ServiceView, StatusView
from sublet.daemon.approvals.approver import Approver
from sublet.daemon.approvals.views import approver_remarks
from sublet.daemon.config.daemon_config import DaemonConfig
from sublet.daemon.health.stalls import Stalls
from sublet.daemon.net.last_ports import LastPorts
from sublet.daemon.peering.homes import Homes
from sublet.daemon.peering.identity import Identity
from sublet.daemon.peering.peers import PeerStore, name_remark
from sublet.daemon.process.places import Places
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.soundness import Soundness
from sublet.daemon.supervising.offer import Offer
from sublet.daemon.times import rfc3339
from sublet.disk.set_aside import SetAside
from sublet.protocol.errors import SubletError
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.confinement import Confinement
from sublet.supervisor.readiness import unready_lines
from sublet.supervisor.slots import Slots
from sublet.tasks import ServiceHealth, Services
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.requirements import require_sandbox
from sublet.workspace.sandbox.cage import Cages
from sublet.workspace.serving.listener import DataPlane


@dataclass(frozen=True, slots=True)
class StatusParts:
    """What is looked at.

    Args:
        config: what was configured.
        identity: who the daemon is.
        journal: knows what was delegated.
        services: how each of them fares.
        aside: what could not be used or removed.
        places: where the faces are reached.
        last_ports: those of the start before.
        bus_port: where paired daemons reach rooms.
        offer: which agents are offered.
        peers: who is paired, and who has a doubtful name.
        approver: whose signature counts.
        messaging: rooms.
        homes: notices daemons that run twice.
        soundness: looks whether databases are sound.
        data_plane: where leases are served.
        slots: what is at work.
        cages: hold agents to their limits.
        confinement: returns how an agent is held.
        mounts: what guards them.
        files: returns what of configuration files is not in force.
        stalls: how long the event loop has stood still.
    """

    config: DaemonConfig
    identity: Identity
    journal: Journal
    services: Services
    aside: SetAside
    places: Places
    last_ports: LastPorts
    bus_port: BusPort
    offer: Offer
    peers: PeerStore
    approver: Approver
    messaging: Messaging
    homes: Homes
    soundness: Soundness
    data_plane: DataPlane
    slots: Slots
    cages: Cages
    confinement: Callable[[AgentConfig], Confinement]
    mounts: Mounts
    files: Callable[[], list[str]]
    stalls: Stalls


class Status:
    """Tells how one daemon is, from its parts; its start is when this is made."""

    def __init__(self, parts: StatusParts) -> None:
        self._parts = parts
        self._started = time.time()

    async def view(self) -> StatusView:
        """Return the daemon at a glance."""
        parts, identity, home = self._parts, self._parts.identity, self._parts.config.home
        host, port = parts.data_plane.address
        failure = await self._sandbox_failure()
        return StatusView(
            pid=os.getpid(),
            version=version("sublet"),
            home=home.root,
            node_id=identity.node_id,
            fingerprint=identity.fingerprint,
            a2a_url=parts.places.a2a.address,
            sftp=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            web=parts.places.web_page(),
            control_socket=parts.places.control.address,
            started_at=rfc3339(self._started),
            uptime_seconds=int(time.time() - self._started),
            peers=len(parts.peers.list()),
            delegations=await parts.journal.count_delegations(),
            assignments_active=parts.slots.in_use,
            slots=parts.slots.capacity,
            tasks=len(asyncio.all_tasks()),
            agents=parts.offer.ids(),
            sandbox=self._sandbox_shown(failure),
            bus=parts.bus_port.shown,
            ezagent_level=await parts.messaging.level(),
            limits=parts.cages.means,
            mount_guard=parts.mounts.guard,
            enforced=self._enforced() if failure is None else [],
            config_dir=home.config_dir,
            state_dir=home.state_dir,
            remarks=[
                *self._port_remarks(),
                *await asyncio.to_thread(unready_lines, parts.offer.now()),
                *parts.files(),
                # Another name than expected is what a newcomer chose badly, or an attempt to be taken for somebody.
                *[name_remark(peer) for peer in parts.peers.list() if peer.note],
                *_set_aside_lines(parts.aside),
                *approver_remarks(parts.approver.pinned),
                *parts.messaging.remarks(),
                *parts.homes.remarks(),
                *parts.soundness.remarks(),
            ],
            services=[_service_view(one) for one in parts.services.health],
            stalls=parts.stalls.newest,
            stall_count=parts.stalls.count,
        )

    def ports(self) -> LastPorts:
        """Return the ports that are listened on; behind a public address the A2A port is the configured one."""
        parts, page = self._parts, self._parts.places.web_page()
        return LastPorts(
            a2a=None if parts.config.public_url else parts.places.a2a_port(),
            sftp=parts.data_plane.address[1],
            web=urlsplit(page).port if page else parts.last_ports.web,
            bus=parts.bus_port.number,
        )

    def _port_remarks(self) -> list[str]:
        """Return which ports are not as peers expect: they know the default ports, unless they were told others."""
        parts, config, page = self._parts, self._parts.config, self._parts.places.web_page()
        listening = [
            ("A2A", config.a2a, parts.places.a2a_port()),
            ("SFTP", config.sftp, parts.data_plane.address[1]),
        ]
        if config.web is not None and page:
            listening.append(("web", config.web, urlsplit(page).port))
        found = [
            f"the default {name} port {wanted.port} is taken by another program, so it is {port} until the next start"
            for name, wanted, port in listening
            if port is not None and not wanted.chosen and port != wanted.port
        ]
        bus, number = config.bus.listen, parts.bus_port.number
        if not bus.chosen and number not in (None, bus.port):
            # The one that peers know goes before the default, also where that is free again.
            found.append(f"the bus of rooms is at port {number}, since the default {bus.port} was taken")
        return found

    async def _sandbox_failure(self) -> SubletError | None:
        """Return why this machine can't confine an agent, found by doing so; None where it can, or need not."""
        if self._parts.config.unsandboxed:
            return None
        try:
            await asyncio.to_thread(require_sandbox)
        except SubletError as error:
            return error
        return None

    def _sandbox_shown(self, failure: SubletError | None) -> str:
        """Return what confines agents, which was tried and is not only wished for."""
        if self._parts.config.unsandboxed:
            return "none: agents run unconfined"
        return "bubblewrap" if failure is None else f"none that works, so no agent is started: {failure.message}"

    def _enforced(self) -> list[str]:
        """Return what holds the first agent."""
        offered = self._parts.offer.agents
        return sorted(self._parts.confinement(offered[0]).enforced) if offered else []


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
