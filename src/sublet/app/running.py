"""Starts the daemon, keeps it running until it is told to stop, and stops it in order (DESIGN 3)."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import structlog

from sublet.app.assembly import make_parts
from sublet.app.faces import A2A_FACE, MCP_FACE, WEB_FACE, load_face, load_face_stores
from sublet.app.operations import operation_table
from sublet.app.parts import Parts
from sublet.app.status_facts import enforced, sandbox_shown, service_view, set_aside_lines
from sublet.daemon.api.daemon import StatusView
from sublet.daemon.approvals.views import approver_remarks
from sublet.daemon.audit_log.log import AuditLog
from sublet.daemon.audit_log.opening import open_audit_log
from sublet.daemon.config.daemon_config import DaemonConfig
from sublet.daemon.config.paths import Home
from sublet.daemon.control.server import ControlServer
from sublet.daemon.control.service_parts import ServiceParts
from sublet.daemon.health.heap import Heap
from sublet.daemon.health.stalls import Stalls
from sublet.daemon.net.last_ports import LastPorts, read_ports, write_ports
from sublet.daemon.net.network import is_loopback, is_wildcard, outward_address
from sublet.daemon.operations.table import OperationTable
from sublet.daemon.peering.identity import Identity, TlsFiles, load_identity, load_tls
from sublet.daemon.peering.key_reports import key_reporter
from sublet.daemon.peering.pairing import OwnAddress
from sublet.daemon.peering.peers import name_remark
from sublet.daemon.ports.peer_link import BusAddress, Face, FaceContext, WebContext
from sublet.daemon.process.endings import Ending, Stop
from sublet.daemon.process.kept_face import KeptFace, signals, started
from sublet.daemon.process.lock import InstanceLock
from sublet.daemon.process.own_files import OwnFiles
from sublet.daemon.process.recovery import keep_swept, recover
from sublet.daemon.reloading.watching import Watcher
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.stop_limit import StopLimit
from sublet.daemon.storage.state import STORE, take_up
from sublet.daemon.storage.store import Store
from sublet.daemon.tasks.failures import sole_failure
from sublet.daemon.times import rfc3339
from sublet.protocol.errors import SubletError
from sublet.tasks import Service, Services

MAX_OPEN_FILES = 65_536
"""Descriptors we allow ourselves, where the system lets us: one lease alone may hold a thousand files open."""

log = structlog.get_logger(__name__)


async def run_daemon(
    config: DaemonConfig, ready: Callable[[StatusView], None] = lambda _: None, limit: type[StopLimit] | None = None
) -> None:
    """Run the daemon until SIGTERM, SIGINT or ``shutdown``.

    Args:
        config: how.
        ready: is called once it can be talked to.
        limit: ends the process where the stop hangs; None where the process is not the daemon's alone.

    Raises:
        SubletError: ``ALREADY_RUNNING``, ``UNAVAILABLE``, ``STATE_VERSION``, ``INVALID_ARGUMENT`` or ``DEP_MISSING``
            where it can't start.
    """
    config.home.make()
    _raise_file_limit()
    with InstanceLock.acquire(config.home) as lock:
        try:
            state_dir = Path(config.home.state_dir)
            await asyncio.to_thread(take_up, state_dir, version("sublet"), load_face_stores())
            identity = load_identity(state_dir / "keys")
            store = await Store.open(state_dir / STORE)
            try:
                with sole_failure(SubletError):
                    await _Daemon(config, identity, store, lock, limit).run(ready)
            finally:
                await store.close()
        finally:
            config.home.clean_up()


class _Daemon:
    """One run of the daemon."""

    def __init__(
        self,
        config: DaemonConfig,
        identity: Identity,
        store: Store,
        lock: InstanceLock,
        limit: type[StopLimit] | None,
    ) -> None:
        self._config = config
        self._home = config.home
        self._lock = lock
        self._services = Services()
        self._stalls = Stalls()
        self._watcher: Watcher | None = None
        self._identity = identity
        self._store = store
        self._started = time.time()
        services, cut = self._services, None if limit is None else limit(health=lambda: services.health)
        self._stop = Stop(lambda failed: None if cut is None else cut.begin(int(failed)))
        self._stop.time.use()
        store.broken = lambda: self._stop.now(Ending.STORE_BROKEN)
        self._ports_file = Path(config.home.state_dir) / "ports.json"
        self._last = read_ports(self._ports_file)
        self._bus_port = BusPort(config.bus, self._last.bus)
        self._faces: list[KeptFace] = []
        self._tls: TlsFiles | None = None
        host = config.a2a.host
        if not is_loopback(host):
            self._tls = load_tls(Path(config.home.state_dir) / "keys", _names(config))

    async def run(self, ready: Callable[[StatusView], None]) -> None:
        """Make the parts, recover, serve, and stop in order: first the work, then the faces, then the data plane."""
        audit_log = await open_audit_log(self._config, self._store, self._identity)
        try:
            await self._run(ready, audit_log)
        finally:
            with anyio.CancelScope(shield=True):
                await audit_log.close()
            if self._home is not self._config.home:
                self._home.clean_up()

    async def _run(self, ready: Callable[[StatusView], None], audit_log: AuditLog) -> None:
        parts = await make_parts(
            self._config, self._store, self._identity, self._own_address, audit_log, self._bus_port, self._services
        )
        if left := await asyncio.to_thread(parts.cages.reap):
            log.warning("control groups of a daemon that is gone were removed", groups=left)
        await parts.journal.set_torn_aside()
        await parts.results.recover()
        await parts.grants.settle()
        await recover(parts.journal, parts.carriers.values(), parts.trees, parts.scratch_root, parts.aside)
        try:
            parts.data_plane.take_up.begin()
            await parts.data_plane.start(self._config.sftp.host, self._config.sftp.free_port(self._last.sftp))
            table = operation_table(
                parts,
                self._service_parts(parts),
                self._config,
                self._web_page,
                lambda: self._status(parts),
                self._stop.ask,
            )
            parts.onward.use(table)
            control = KeptFace("control socket", lambda _: ControlServer(self._home, table, parts.callers.agent))
            async with anyio.create_task_group() as reports:
                context = self._context(parts, table, key_reporter(parts.peers, reports))
                self._faces = self._made_faces(context)
                await self._serve(parts, control, ready, audit_log)
        finally:
            parts.data_plane.close()
            self._bus_port.close()
            parts.trees.staging.close()
            with anyio.CancelScope(shield=True):
                await parts.link.aclose()
                await asyncio.to_thread(parts.cages.close)

    async def _serve(
        self, parts: Parts, control: KeptFace, ready: Callable[[StatusView], None], audit_log: AuditLog
    ) -> None:
        with signals(self._stop):
            services = self._services
            self._watcher = Watcher(parts.reloader) if self._config.watch_files else None
            sockets = [self._faces[1], control]
            own_files = OwnFiles(self._home, self._lock, sockets, self._stop, self._moved)
            async with (
                services.running(Service("stall watch", self._stalls.serve), Service("heap", Heap().serve)),
                services.running(Service("audit log", audit_log.serve)),
                services.running(Service("sftp", parts.data_plane.serve)),
                started(services, *self._faces, control),
                services.running(
                    Service("pruning", parts.pruning.serve),
                    Service("end hooks", parts.hook.serve),
                    Service("staged results", parts.results.serve),
                ),
                parts.supervising.running(),
                services.running(
                    Service("delegations", parts.delegator.serve),
                    Service("work for others", parts.executor.serve),
                    Service("supervisor", parts.supervising.serve),
                ),
                services.running(
                    Service("gateways", parts.gateways.serve),
                    *parts.rooms.services,
                    Service("addresses of peers", parts.whereabouts.serve),
                    Service("what was set aside", partial(keep_swept, parts.aside)),
                ),
                services.running(
                    Service("own sockets", own_files.serve),
                    *([Service("file watcher", self._watcher.serve)] if self._watcher is not None else []),
                ),
            ):
                status = await self._status(parts)
                await asyncio.to_thread(write_ports, self._ports_file, self._bound(parts))
                # What was made to start stays until the end: no collection has to stop everything to look through it.
                gc.freeze()
                log.info("ready", a2a_url=status.a2a_url, sftp=status.sftp, node_id=status.node_id)
                ready(status)
                await self._stop.wait()
                log.info("stopping")
        self._stop.check()

    def _made_faces(self, context: FaceContext) -> list[KeptFace]:
        """Return all faces, not started yet; the web page is the last one, unless it is switched off."""

        def a2a(before: str | None) -> Face:
            port = None if before is None or context.public_url else urlsplit(before).port
            return load_face(A2A_FACE, context if port is None else replace(context, a2a_port=port))

        def page(before: str | None) -> Face:
            port = None if before is None else urlsplit(before).port
            web = context.web
            return load_face(WEB_FACE, replace(context, web=replace(web, port=port)) if web and port else context)

        def mcp(_: str | None) -> Face:
            return load_face(MCP_FACE, replace(context, runtime_dir=Path(self._home.runtime_dir)))

        made = [KeptFace("a2a", a2a), KeptFace("mcp", mcp)]
        return made if context.web is None else [*made, KeptFace("web page", page)]

    def _moved(self, home: Home) -> None:
        """Use another directory for sockets from now on."""
        self._home = home

    def _bound(self, parts: Parts) -> LastPorts:
        """Return the ports that are listened on; behind a public address the A2A port is the configured one."""
        a2a = None if self._config.public_url else urlsplit(self._faces[0].address).port
        page = self._web_page()
        web = urlsplit(page).port if page else self._last.web
        return LastPorts(a2a=a2a, sftp=parts.data_plane.address[1], web=web, bus=self._bus_port.number)

    def _web_page(self) -> str | None:
        """Return where the web page is, or None where it is switched off."""
        return self._faces[-1].address if self._config.web is not None else None

    def _own_address(self) -> OwnAddress:
        return OwnAddress(self._faces[0].address, self._tls.certificate_pem if self._tls else None)

    def _remarks(self, parts: Parts) -> list[str]:
        """Return what is not as its owner may expect: peers know the default ports, unless they were told others."""
        a2a, sftp, web, bus = self._config.a2a, self._config.sftp, self._config.web, self._config.bus.listen
        page = self._web_page()
        listening = [("A2A", a2a, urlsplit(self._faces[0].address).port), ("SFTP", sftp, parts.data_plane.address[1])]
        if web is not None and page:
            listening.append(("web", web, urlsplit(page).port))
        ports = [
            f"the default {name} port {wanted.port} is taken by another program, so it is {port} until the next start"
            for name, wanted, port in listening
            if port is not None and not wanted.chosen and port != wanted.port
        ]
        if not bus.chosen and self._bus_port.number not in (None, bus.port):
            # The one that peers know goes before the default, also where that is free again.
            ports.append(f"the bus of rooms is at port {self._bus_port.number}, since the default {bus.port} was taken")
        watching = self._watcher.remarks if self._watcher is not None else []
        # Another name than expected is what a newcomer chose badly, or an attempt to be taken for somebody.
        names = [name_remark(peer) for peer in parts.peers.list() if peer.note]
        return [*ports, *parts.reloader.remarks, *watching, *names, *set_aside_lines(parts.aside)]

    def _service_parts(self, parts: Parts) -> ServiceParts:
        return ServiceParts(
            git=parts.git,
            policy=parts.policy,
            gate=parts.gate,
            journal=parts.journal,
            delegator=parts.delegator,
            peers=parts.peers,
            pruning=parts.pruning,
            results=parts.results,
            chain_of=parts.callers.chain,
            rest_of=parts.callers.rest,
            max_depth=lambda: self._config.supervisor.max_depth,
        )

    def _context(self, parts: Parts, table: OperationTable, key_changed: Callable[[str, str], None]) -> FaceContext:
        home = self._config.home
        return FaceContext(
            operations=table,
            calls=parts.calls,
            executor=parts.executor,
            messages=parts.messages,
            pairing=parts.pairing,
            whereabouts=parts.whereabouts,
            key=self._identity.key,
            node_id=self._identity.node_id,
            fingerprint=self._identity.fingerprint,
            version=version("sublet"),
            agents=lambda: parts.offer.agents,
            identify=parts.callers.agent,
            find_peer=parts.peers.find_known,
            key_changed=key_changed,
            find_token=parts.tokens.find,
            nonces=parts.nonces,
            a2a_host=self._config.a2a.host,
            a2a_port=self._config.a2a.free_port(self._last.a2a),
            public_url=self._config.public_url,
            tls=(self._tls.certificate, self._tls.key) if self._tls else None,
            state_dir=Path(home.state_dir),
            runtime_dir=Path(home.runtime_dir),
            services=self._services,
            bus=self._bus_door(),
            web=self._web_context(parts),
            web_page=self._web_page,
        )

    def _bus_door(self) -> BusAddress | None:
        number = self._bus_port.number
        return None if number is None else BusAddress(number)

    def _web_context(self, parts: Parts) -> WebContext | None:
        wanted = self._config.web
        if wanted is None:
            return None
        return WebContext(
            logins=parts.web_logins,
            port=wanted.free_port(self._last.web),
            chosen=wanted.chosen,
        )

    async def _status(self, parts: Parts) -> StatusView:
        home = self._config.home
        host, port = parts.data_plane.address
        return StatusView(
            pid=os.getpid(),
            version=version("sublet"),
            home=home.root,
            node_id=self._identity.node_id,
            fingerprint=self._identity.fingerprint,
            a2a_url=self._own_address().a2a_url,
            sftp=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            web=self._web_page(),
            control_socket=self._home.control_socket,
            started_at=rfc3339(self._started),
            uptime_seconds=int(time.time() - self._started),
            peers=len(parts.peers.list()),
            delegations=await parts.journal.count_delegations(),
            assignments_active=parts.slots.in_use,
            slots=parts.slots.capacity,
            tasks=len(asyncio.all_tasks()),
            agents=[agent.id for agent in parts.offer.agents],
            sandbox=await sandbox_shown(self._config),
            bus=self._bus_port.shown,
            ezagent_level=await parts.rooms.messaging.level(),
            limits=parts.cages.means,
            mount_guard=parts.mounts.guard,
            enforced=await enforced(self._config, parts),
            config_dir=home.config_dir,
            state_dir=home.state_dir,
            remarks=[
                *self._remarks(parts),
                *approver_remarks(parts.approver.pinned),
                *parts.rooms.messaging.remarks(),
            ],
            services=[service_view(one) for one in self._services.health],
            stalls=self._stalls.newest,
            stall_count=self._stalls.count,
        )


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
