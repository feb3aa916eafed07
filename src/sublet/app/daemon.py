"""One run of the daemon: its areas are made, recovered, served and stopped in order (DESIGN 3)."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import structlog

from sublet.app.areas import Areas, make_areas
from sublet.app.faces import Faces, Sockets, make_faces
from sublet.app.ground import lay
from sublet.app.operations import operation_table
from sublet.app.status import make_status
from sublet.daemon.api.daemon import StatusView
from sublet.daemon.audit_log.opening import AUDIT_LOG, open_audit_log
from sublet.daemon.config.daemon_config import DaemonConfig
from sublet.daemon.config.paths import Home
from sublet.daemon.health.heap import Heap
from sublet.daemon.health.loaded import Loaded
from sublet.daemon.health.stalls import Stalls
from sublet.daemon.health.status import Status
from sublet.daemon.lending.recovery import release_held
from sublet.daemon.net.addresses import is_loopback, is_wildcard, outward_address
from sublet.daemon.net.last_ports import LastPorts, read_ports, write_ports
from sublet.daemon.peering.identity import Identity, TlsFiles, load_tls
from sublet.daemon.peering.key_reports import key_reporter
from sublet.daemon.process.endings import Stop
from sublet.daemon.process.kept_face import signals, started
from sublet.daemon.process.leftovers import clear, keep_swept
from sublet.daemon.process.lock import InstanceLock
from sublet.daemon.process.opened import Opened
from sublet.daemon.process.own_files import OwnFiles
from sublet.daemon.storage.store import Store
from sublet.daemon.web_access.logins import WebLogins
from sublet.daemon.working.recovery import end_assignments
from sublet.tasks import Service, Services

MAX_OPEN_FILES = 65_536
"""Descriptors we allow ourselves, where the system lets us: one lease alone may hold a thousand files open."""

log = structlog.get_logger(__name__)


class Daemon:
    """One run of the daemon.

    Args:
        config: what was configured.
        identity: its keys.
        store: its open database.
        lock: held by this process.
        stop: ends it.
        services: keeps what parts run for as long as they live.
    """

    def __init__(
        self, config: DaemonConfig, identity: Identity, store: Store, lock: InstanceLock, stop: Stop, services: Services
    ) -> None:
        self._config = config
        self._identity = identity
        self._store = store
        self._lock = lock
        self._stop = stop
        self._services = services
        self._stalls = Stalls()
        self._sockets = Sockets(config.home)
        self._state_dir = Path(config.home.state_dir)
        self._ports_file = self._state_dir / "ports.json"

    async def run(self, ready: Callable[[StatusView], None]) -> None:
        """Make the areas, recover, serve, and stop in order: first the work, then the faces, then the data plane.

        Raises:
            SubletError: as ``run_daemon``, what happens after the store was opened.
        """
        _raise_file_limit()
        last_ports, tls = read_ports(self._ports_file), self._load_tls()
        async with Opened() as opened:
            opened.close_by(self._leave_sockets)
            audit_log = await open_audit_log(self._state_dir / AUDIT_LOG, self._store, self._identity.key)
            opened.wait_for(audit_log.close)
            config, identity, store, services = self._config, self._identity, self._store, self._services
            ground = lay(config, identity, tls, store, audit_log, services, self._stop, last_ports, opened)
            await self._run(await make_areas(ground), ready)

    async def _run(self, areas: Areas, ready: Callable[[StatusView], None]) -> None:
        await self._recover(areas)
        await self._start_data_plane(areas, areas.ground.last_ports)
        status, web_logins = make_status(areas, self._stalls), WebLogins()
        table = operation_table(areas, status, web_logins)
        async with anyio.create_task_group() as reports:
            key_changed = key_reporter(areas.peering.peers, reports)
            faces = make_faces(areas, table, web_logins, self._sockets, key_changed)
            await self._serve(areas, faces, status, ready)

    async def _recover(self, areas: Areas) -> None:
        """Clean up what the last process has left, before anything new begins."""
        ground, lending = areas.ground, areas.lending
        if left := await asyncio.to_thread(areas.agents.cages.reap):
            log.warning("control groups of a daemon that is gone were removed", groups=left)
        await ground.journal.set_torn_aside()
        await lending.results.recover()
        await areas.governance.grants.settle()
        await asyncio.to_thread(clear, ground.scratch_root, ground.aside)
        await end_assignments(ground.journal, areas.working.carriers.values())
        await release_held(ground.journal, lending.trees)

    async def _start_data_plane(self, areas: Areas, last_ports: LastPorts) -> None:
        data_plane, sftp = areas.lending.data_plane, self._config.sftp
        data_plane.take_up.begin()
        await data_plane.start(sftp.host, sftp.free_port(last_ports.sftp))

    async def _serve(self, areas: Areas, faces: Faces, status: Status, ready: Callable[[StatusView], None]) -> None:
        ground, lending, agents, upkeep = areas.ground, areas.lending, areas.agents, areas.upkeep
        services, watcher = ground.services, areas.upkeep.watcher
        loaded = Loaded()
        heap = Service("heap", Heap(loaded=loaded.look).serve)
        with signals(self._stop):
            sockets = [faces.mcp, faces.control]
            own_files = OwnFiles(self._config.home, self._lock, sockets, self._stop, self._moved)
            async with (
                services.running(Service("stall watch", self._stalls.serve), heap),
                services.running(Service("audit log", ground.audit_log.serve)),
                services.running(Service("sftp", lending.data_plane.serve)),
                started(services, *faces.all),
                services.running(
                    Service("pruning", upkeep.pruning.serve),
                    Service("databases", upkeep.soundness.serve),
                    Service("end hooks", lending.hook.serve),
                    Service("staged results", lending.results.serve),
                    areas.offices.telling,
                ),
                agents.supervising.running(),
                services.running(
                    Service("delegations", lending.delegator.serve),
                    Service("work for others", areas.working.executor.serve),
                    Service("supervisor", agents.supervising.serve),
                ),
                services.running(
                    agents.gateway_service,
                    *areas.rooms.services,
                    *areas.federation.services,
                    areas.offices.running,
                    areas.panels.running,
                    Service("addresses of peers", areas.peering.whereabouts.serve),
                    Service("what was set aside", partial(keep_swept, ground.aside)),
                ),
                services.running(
                    Service("own sockets", own_files.serve),
                    *([Service("file watcher", watcher.serve)] if watcher is not None else []),
                ),
            ):
                view = await status.view()
                await asyncio.to_thread(write_ports, self._ports_file, status.ports())
                loaded.ready()
                log.info("ready", a2a_url=view.a2a_url, sftp=view.sftp, node_id=view.node_id)
                ready(view)
                await self._stop.wait()
                log.info("stopping")
        self._stop.check()

    def _moved(self, home: Home) -> None:
        """Use another directory for sockets from now on."""
        self._sockets.home = home

    def _leave_sockets(self) -> None:
        """Remove another directory that sockets have moved to; the configured one goes with the lock."""
        if self._sockets.home is not self._config.home:
            self._sockets.home.clean_up()

    def _load_tls(self) -> TlsFiles | None:
        """Return the certificate that faces are served with beyond this machine."""
        if is_loopback(self._config.a2a.host):
            return None
        return load_tls(self._state_dir / "keys", _names(self._config))


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _names(config: DaemonConfig) -> list[str]:
    """Return the names that our certificate is for; peers pin it as it is, other clients go by them."""
    host = config.a2a.host
    public = urlsplit(config.public_url).hostname if config.public_url else None
    own = [outward_address(ipv6=":" in host), socket.gethostname()] if is_wildcard(host) else [host]
    return [*([public] if public else []), *own]
