"""Starts the daemon, keeps it running until it is told to stop, and stops it in order (DESIGN 3)."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import structlog
from anyio.abc import TaskGroup

from sublet.daemon.api.daemon_models import StatusView
from sublet.daemon.approvals.views import approver_remarks
from sublet.daemon.audit_log.log import AuditLog
from sublet.daemon.config import DaemonConfig
from sublet.daemon.control.approval_routes import ApprovalArea
from sublet.daemon.control.capability_routes import CapabilityArea
from sublet.daemon.control.config_routes import ConfigArea
from sublet.daemon.control.config_service import ConfigService
from sublet.daemon.control.delivery_routes import DeliveryArea
from sublet.daemon.control.gateway_routes import GatewayArea
from sublet.daemon.control.policy_routes import PolicyArea
from sublet.daemon.control.replay_routes import ReplayArea
from sublet.daemon.control.room_file_routes import RoomFileArea
from sublet.daemon.control.room_mark_routes import RoomMarkArea
from sublet.daemon.control.room_member_routes import RoomMemberArea
from sublet.daemon.control.room_people_routes import RoomPeopleArea
from sublet.daemon.control.room_presence_routes import RoomPresenceArea
from sublet.daemon.control.room_routes import RoomArea
from sublet.daemon.control.room_text_routes import RoomTextArea
from sublet.daemon.control.room_watch_routes import RoomWatchArea
from sublet.daemon.control.server import ControlServer
from sublet.daemon.control.service import DaemonService
from sublet.daemon.control.service_parts import ServiceParts
from sublet.daemon.control.supervisor_routes import SupervisorArea
from sublet.daemon.control.talk_routes import TalkArea
from sublet.daemon.control.web_routes import WebArea
from sublet.daemon.diagnosis import diagnose
from sublet.daemon.faces import load_faces
from sublet.daemon.failures import sole_failure
from sublet.daemon.lock import InstanceLock
from sublet.daemon.modules.gateway_service import GatewayService
from sublet.daemon.net.last_ports import LastPorts, read_ports, write_ports
from sublet.daemon.net.network import is_loopback, is_wildcard, outward_address
from sublet.daemon.parts import Parts, make_parts, open_audit_log
from sublet.daemon.peering.identity import Identity, TlsFiles, load_identity, load_tls
from sublet.daemon.peering.pairing import OwnAddress
from sublet.daemon.peering.peer_directory import PeerDirectory
from sublet.daemon.peering.peers import PeerStore
from sublet.daemon.ports import BusDoor, Face, FaceContext, WebContext
from sublet.daemon.recovery import recover
from sublet.daemon.reloading.watching import Watcher
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.running import running, signals, started
from sublet.daemon.storage.store import Store
from sublet.daemon.times import rfc3339
from sublet.daemon.web_access.service import WebService
from sublet.protocol.errors import SubletError

MAX_OPEN_FILES = 65_536
"""Descriptors we allow ourselves, where the system lets us: one lease alone may hold a thousand files open."""
MAX_KEY_REPORTS = 64
"""Reports of a peer's changed key that may wait for the journal at once; more are only logged."""

log = structlog.get_logger(__name__)


async def run_daemon(config: DaemonConfig, ready: Callable[[StatusView], None] = lambda _: None) -> None:
    """Run the daemon until SIGTERM, SIGINT or ``shutdown``; ``ready`` is called once it can be talked to.

    Raises:
        SubletError: ``ALREADY_RUNNING``, ``UNAVAILABLE``, ``INVALID_ARGUMENT`` or ``DEP_MISSING`` where it can't start.
    """
    config.home.make()
    _raise_file_limit()
    with InstanceLock.acquire(config.home):
        try:
            identity = load_identity(Path(config.home.state_dir) / "keys")
            store = await Store.open(Path(config.home.state_dir) / "sublet.db")
            try:
                with sole_failure(SubletError):
                    await _Daemon(config, identity, store).run(ready)
            finally:
                await store.close()
        finally:
            config.home.clean_up()


class _Daemon:
    """One run of the daemon."""

    def __init__(self, config: DaemonConfig, identity: Identity, store: Store) -> None:
        self._config = config
        self._identity = identity
        self._store = store
        self._started = time.time()
        self._stop = asyncio.Event()
        self._ports_file = Path(config.home.state_dir) / "ports.json"
        self._last = read_ports(self._ports_file)
        self._bus_port = BusPort(config.bus, self._last.bus)
        self._faces: list[Face] = []
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

    async def _run(self, ready: Callable[[StatusView], None], audit_log: AuditLog) -> None:
        parts = await make_parts(
            self._config, self._store, self._identity, self._own_address, audit_log, self._bus_port
        )
        if left := await asyncio.to_thread(parts.cages.reap):
            log.warning("control groups of a daemon that is gone were removed", groups=left)
        await parts.results.recover()
        await parts.grants.settle()
        await recover(parts.journal, parts.carriers.values(), parts.trees, parts.scratch_root)
        try:
            parts.data_plane.take_up.begin()
            await parts.data_plane.start(self._config.sftp.host, self._config.sftp.free_port(self._last.sftp))
            service = self._service(parts)
            parts.onward.use(service)
            control = ControlServer(
                service,
                self._config.home,
                [
                    SupervisorArea(parts.supervising.service),
                    ReplayArea(parts.replays),
                    RoomArea(parts.rooms.service),
                    DeliveryArea(parts.rooms.delivery),
                    TalkArea(parts.rooms.talk),
                    RoomMemberArea(parts.rooms.members),
                    RoomMarkArea(parts.rooms.marks),
                    RoomPeopleArea(parts.rooms.people),
                    RoomPresenceArea(parts.rooms.presence),
                    RoomFileArea(parts.rooms.files),
                    RoomTextArea(parts.rooms.texts),
                    RoomWatchArea(parts.rooms.talk),
                    ConfigArea(ConfigService(parts.gate, self._config)),
                    PolicyArea(parts.policy_service),
                    CapabilityArea(parts.modules.service),
                    GatewayArea(GatewayService(parts.gate, parts.gateways)),
                    ApprovalArea(parts.approvals),
                    WebArea(WebService(parts.gate, parts.web_logins, self._web_page)),
                ],
                parts.callers.agent,
            )
            async with anyio.create_task_group() as reports:
                self._faces = load_faces(self._context(parts, service, _key_reporter(parts.peers, reports)))
                await self._serve(parts, control, ready, audit_log)
        finally:
            parts.data_plane.close()
            self._bus_port.close()
            parts.trees.staging.close()
            with anyio.CancelScope(shield=True):
                await parts.link.aclose()
                await asyncio.to_thread(parts.cages.close)

    async def _serve(
        self, parts: Parts, control: ControlServer, ready: Callable[[StatusView], None], audit_log: AuditLog
    ) -> None:
        with signals(self._stop):
            async with (
                running(audit_log.serve),
                running(parts.data_plane.serve),
                started(*self._faces, control),
                running(parts.pruning.serve, parts.hook.serve, parts.results.serve),
                running(parts.delegator.serve, parts.executor.serve, parts.supervising.serve),
                running(parts.gateways.serve, parts.rooms.serve, parts.whereabouts.serve),
                running(*([Watcher(parts.reloader).serve] if self._config.watch_files else [])),
            ):
                status = await self._status(parts)
                await asyncio.to_thread(write_ports, self._ports_file, self._bound(parts))
                # What was made to start stays until the end: no collection has to stop everything to look through it.
                gc.freeze()
                log.info("ready", a2a_url=status.a2a_url, sftp=status.sftp, node_id=status.node_id)
                ready(status)
                await self._stop.wait()
                log.info("stopping")

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
        a2a, sftp = self._config.a2a, self._config.sftp
        listening = [("A2A", a2a, urlsplit(self._faces[0].address).port), ("SFTP", sftp, parts.data_plane.address[1])]
        ports = [
            f"the default {name} port {wanted.port} is taken by another program, so it is {port} until the next start"
            for name, wanted, port in listening
            if port is not None and not wanted.chosen and port != wanted.port
        ]
        return [*ports, *parts.reloader.remarks]

    def _service(self, parts: Parts) -> DaemonService:
        directory = PeerDirectory(parts.peers, parts.link)
        return DaemonService(
            ServiceParts(
                git=parts.git,
                policy=parts.policy,
                gate=parts.gate,
                journal=parts.journal,
                delegator=parts.delegator,
                executor=parts.executor,
                peers=parts.peers,
                peer_directory=directory.views,
                pairing=parts.pairing,
                tokens=parts.tokens,
                lend_roots=parts.lend_roots,
                pruning=parts.pruning,
                results=parts.results,
                status=lambda: self._status(parts),
                doctor=lambda: diagnose(self._config.home, running=True, limits=parts.cages.means),
                reload=parts.reloader.reload,
                stop=self._stop.set,
                node_id=self._identity.node_id,
                chain_of=parts.callers.chain,
                rest_of=parts.callers.rest,
                max_depth=lambda: self._config.supervisor.max_depth,
            )
        )

    def _context(self, parts: Parts, service: DaemonService, key_changed: Callable[[str, str], None]) -> FaceContext:
        home = self._config.home
        return FaceContext(
            api=service,
            calls=parts.calls,
            executor=parts.executor,
            messages=parts.messages,
            pairing=parts.pairing,
            whereabouts=parts.whereabouts,
            talk=parts.rooms.talk,
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
            bus=self._bus_door(),
            web=self._web_context(parts),
            web_page=self._web_page,
        )

    def _bus_door(self) -> BusDoor | None:
        number = self._bus_port.number
        return None if number is None else BusDoor(number, self._bus_port.tls)

    def _web_context(self, parts: Parts) -> WebContext | None:
        wanted = self._config.web
        if wanted is None:
            return None
        return WebContext(
            supervisor=parts.supervising.service,
            policy=parts.policy_service,
            approvals=parts.approvals,
            rooms=parts.rooms.service,
            files=parts.rooms.files,
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
            control_socket=home.control_socket,
            started_at=rfc3339(self._started),
            uptime_seconds=int(time.time() - self._started),
            peers=len(parts.peers.list()),
            delegations=await parts.journal.count_delegations(),
            assignments_active=parts.executor.active,
            slots=parts.slots.capacity,
            tasks=len(asyncio.all_tasks()),
            agents=[agent.id for agent in parts.offer.agents],
            sandbox="none: agents run unconfined" if self._config.unsandboxed else "bubblewrap",
            bus=next(iter(self._bus_port.listen), None),
            ezagent_level=await parts.rooms.messaging.level(),
            limits=parts.cages.means,
            enforced=sorted(parts.enforced(parts.offer.agents[0])) if parts.offer.agents else [],
            config_dir=home.config_dir,
            state_dir=home.state_dir,
            remarks=[*self._remarks(parts), *approver_remarks(parts.approver.pinned)],
        )


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _key_reporter(peers: PeerStore, group: TaskGroup) -> Callable[[str, str], None]:
    """Return what journals that somebody poses as a peer; how often strangers try must not matter to us."""
    pending = 0

    async def report(name: str, fingerprint: str) -> None:
        nonlocal pending
        try:
            await peers.report_changed_key(name, fingerprint)
        except SubletError as error:
            log.error("a changed key could not be journalled", peer=name, reason=str(error))
        finally:
            pending -= 1

    def key_changed(node_id: str, fingerprint: str) -> None:
        nonlocal pending
        peer = peers.by_node_id(node_id)
        name = peer.name if peer else node_id
        log.warning("a peer's key has changed, or somebody poses as it", peer=name, fingerprint=fingerprint)
        if pending < MAX_KEY_REPORTS:
            pending += 1
            group.start_soon(report, name, fingerprint)

    return key_changed


def _names(config: DaemonConfig) -> list[str]:
    """Return the names that our certificate is for; peers pin it as it is, other clients go by them."""
    host = config.a2a.host
    public = urlsplit(config.public_url).hostname if config.public_url else None
    own = [outward_address(ipv6=":" in host), socket.gethostname()] if is_wildcard(host) else [host]
    return [*([public] if public else []), *own]
