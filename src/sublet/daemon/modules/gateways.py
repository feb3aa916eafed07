"""The gateways of this daemon: started, connected, stopped, and what passes through them."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
import structlog
from anyio.abc import TaskGroup

from sublet.daemon.api.gateways import State
from sublet.daemon.modules.gateway_feed import GatewayFeed
from sublet.daemon.modules.gateway_server import HOST, GatewayServer
from sublet.daemon.storage.private_files import make_private, read_private
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.gateway import DeliveryMode, GatewayEvent, GatewayInput
from sublet.protocol.text import clean, clean_line
from sublet.stop_time import within
from sublet.supervisor.agent import AgentRunContext
from sublet.supervisor.gateways.module_file import GatewayModule, GatewaySet, HealthChecks, read_gateways
from sublet.supervisor.gateways.session import GatewaySession
from sublet.supervisor.gateways.stdio import StdioGateway
from sublet.supervisor.launch import Sandbox
from sublet.tasks import Service, Services, start_alone

GATEWAYS: Final = "gateways"
CONNECT_SECONDS: Final = 5.0
"""How long is waited for a gateway that is started because something is to be sent."""
STOP_SECONDS: Final = 20.0

log = structlog.get_logger(__name__)

Handle = Callable[[GatewayModule, GatewayInput], Awaitable[str]]


class Gateway:
    """One gateway as it is now."""

    def __init__(self, module: GatewayModule) -> None:
        self.module = module
        self.state: State = "stopped"
        self.detail = ""
        self.health = ""
        self.token = ""
        self.session: GatewaySession | None = None
        self.scope: anyio.CancelScope | None = None
        self.ended = anyio.Event()
        self.connected = anyio.Event()
        self.feeding: anyio.CancelScope | None = None


class Gateways:
    """Implements ``KnowsGateways`` and ``ModuleHub``. ``serve`` must run for anything to be started.

    Args:
        root: where their modules lie.
        state_dir: where their tokens are kept.
        scratch_root: below which their programs have their directories.
        sandbox: confines them.
        feed: feeds those that have rules for it.
        services: keeps what listens for their connections.
    """

    def __init__(
        self,
        root: Path,
        state_dir: Path,
        scratch_root: Path,
        sandbox: Sandbox,
        feed: GatewayFeed,
        services: Services | None = None,
    ) -> None:
        self._services = services or Services()
        self.root = root
        self._tokens = state_dir / GATEWAYS
        self._scratch_root = scratch_root
        self._sandbox = sandbox
        self._handle: Handle | None = None
        self._feed = feed
        self._known: dict[str, Gateway] = {}
        self._problems: dict[str, str] = {}
        self._group: TaskGroup | None = None
        self._server = GatewayServer(self)
        self._serving = False
        self._changing = asyncio.Lock()

    async def serve(self, handle: Handle) -> None:
        """Run gateways until cancelled; each is ended then, and what waits for it is rejected.

        Args:
            handle: has the supervisor see to an input. It is made of what sends to gateways, so it comes here: before
                this runs, nothing comes in.
        """
        async with anyio.create_task_group() as group:
            self._group, self._handle = group, handle
            try:
                await self.use(await asyncio.to_thread(read_gateways, self.root))
                await anyio.sleep_forever()
            finally:
                self._group = self._handle = None
                for gateway in self._known.values():
                    if gateway.session is not None:
                        gateway.session.lose("the daemon is stopping")
                # Where this is run again, all of them begin anew.
                self._known, self._serving = {}, False

    async def use(self, found: GatewaySet) -> bool:
        """Have exactly these gateways: what changed is started anew, what is gone is stopped. Tell if any was."""
        if self._group is None:
            return False
        async with self._changing:
            return await self._use(found)

    async def _use(self, found: GatewaySet) -> bool:
        before = {name: gateway.module for name, gateway in self._known.items()}
        changed = before != dict(found.found) or self._problems != dict(found.problems)
        self._problems = dict(found.problems)
        for name, gateway in list(self._known.items()):
            if found.found.get(name) != gateway.module:
                await self.stop(name)
                if gateway.feeding is not None:
                    gateway.feeding.cancel()
                del self._known[name]
        for name, module in found.found.items():
            if name not in self._known:
                gateway = self._known[name] = Gateway(module)
                if module.enabled and module.load == "start":
                    try:
                        await self.start(name)
                    except SubletError as error:
                        # One that can't be started is no reason to be without the others.
                        log.error("a gateway can't be started", gateway=name, reason=str(error))
                        gateway.state, gateway.detail = "failed", clean_line(error.message, 300)
                if module.enabled and module.feed and self._group is not None:
                    gateway.feeding = anyio.CancelScope()
                    start_alone(self._group, "feeding a gateway", self._fed, gateway, gateway.feeding)
        return changed

    def get(self, gateway_id: str) -> Gateway:
        """Return a gateway.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        gateway = self._known.get(gateway_id)
        if gateway is None:
            shown = clean_line(gateway_id, 80)
            raise SubletError(LocalCode.NOT_FOUND, f"there is no gateway {shown!r}", "See: sublet gateway list")
        return gateway

    async def start(self, gateway_id: str) -> None:
        """Start its program, or let it connect; one that runs goes on.

        Raises:
            SubletError: ``NOT_FOUND``; ``UNAVAILABLE`` where the daemon stops or it is switched off.
        """
        gateway = self.get(gateway_id)
        if self._group is None:
            raise SubletError(LocalCode.UNAVAILABLE, "the daemon is stopping")
        if not gateway.module.enabled:
            raise SubletError(LocalCode.UNAVAILABLE, f"gateway {gateway_id} is switched off in its module.json")
        if gateway.state in ("connected", "starting"):
            return
        gateway.state, gateway.detail, gateway.connected = "starting", "", anyio.Event()
        if gateway.module.protocol == "stdio":
            gateway.scope, gateway.ended = anyio.CancelScope(), anyio.Event()
            start_alone(self._group, "a gateway", self._run, gateway, gateway.scope, gateway.ended)
            return
        gateway.token = await asyncio.to_thread(self._token_of, gateway_id)
        gateway.detail = "waits for its connection"
        if self._group is None:
            gateway.state, gateway.token = "stopped", ""
            raise SubletError(LocalCode.UNAVAILABLE, "the daemon is stopping")
        if not self._serving:
            self._serving = True
            self._services.start(self._group, Service("connections of gateways", self._server.serve))

    async def stop(self, gateway_id: str) -> None:
        """End its program or its connection; what waits for it is rejected."""
        gateway = self.get(gateway_id)
        gateway.state, gateway.detail, gateway.token, gateway.health = "stopped", "", "", ""
        if gateway.session is not None:
            gateway.session.lose("it was stopped")
            gateway.session = None
        if gateway.scope is not None:
            gateway.scope.cancel()
            with anyio.move_on_after(within(STOP_SECONDS)):
                await gateway.ended.wait()
            gateway.scope = None

    async def send_message(self, gateway_id: str, message: JsonValue, mode: DeliveryMode | None = None) -> JsonValue:
        """Have it deliver a message; one that is to be loaded on demand is started first.

        Raises:
            SubletError: as ``GatewaySession.send``.
        """
        gateway = self.get(gateway_id)
        if gateway.session is None and gateway.module.load == "on_demand":
            await self.start(gateway_id)
        if gateway.session is None and gateway.state == "starting":
            with anyio.move_on_after(CONNECT_SECONDS):
                await gateway.connected.wait()
        if gateway.session is None:
            why = gateway.detail or gateway.state
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"gateway {gateway_id} is not connected: {why}",
                f"Start it: sublet gateway start {gateway_id}"
                if gateway.module.protocol == "stdio" or gateway.state == "stopped"
                else f"Its program connects by the address and token of: sublet gateway show {gateway_id}",
            )
        return await gateway.session.send(message, mode)

    def views(self) -> tuple[list[Gateway], dict[str, str]]:
        """Return all, and what is wrong with others."""
        return [gateway for _, gateway in sorted(self._known.items())], self._problems

    def url(self, module: GatewayModule) -> str | None:
        """Return where a gateway connects, while it may."""
        if self._server.port is None or module.protocol == "stdio":
            return None
        if module.protocol == "websocket":
            return f"ws://{HOST}:{self._server.port}/v1/gateways/{module.id}/ws"
        return f"http://{HOST}:{self._server.port}/v1/gateways/{module.id}"

    # ModuleHub

    def names(self) -> list[str]:
        """``ModuleHub.names``."""
        return [
            name
            for name, gateway in self._known.items()
            if gateway.module.enabled and gateway.module.direction != "input"
        ]

    async def send(self, module: str, text: str, ctx: AgentRunContext) -> str:
        """``ModuleHub.send``."""
        found = await self.send_message(module, {"text": text, "requestId": ctx.request_id})
        return "" if found is None else found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)

    # KnowsGateways

    def token(self, gateway_id: str, protocol: str) -> str | None:
        """``KnowsGateways.token``."""
        gateway = self._known.get(gateway_id)
        return gateway.token or None if gateway is not None and gateway.module.protocol == protocol else None

    def connected(self, gateway_id: str) -> GatewaySession:
        """``KnowsGateways.connected``."""
        return self._session(self.get(gateway_id))

    def session(self, gateway_id: str) -> GatewaySession | None:
        """``KnowsGateways.session``."""
        return self.get(gateway_id).session

    def lost(self, gateway_id: str, session: GatewaySession, why: str) -> None:
        """``KnowsGateways.lost``."""
        session.lose(why)
        gateway = self._known.get(gateway_id)
        if gateway is not None and gateway.session is session:
            gateway.session = None
            gateway.state, gateway.detail, gateway.connected = (
                "starting",
                f"{why}; waits for its connection",
                anyio.Event(),
            )

    def _session(self, gateway: Gateway) -> GatewaySession:
        assert self._group is not None
        assert self._handle is not None
        if gateway.session is not None:
            gateway.session.lose("it has connected anew")
        gateway.session = GatewaySession(gateway.module, self._group, self._handle, _told)
        gateway.health = ""
        if gateway.module.health is not None:
            start_alone(
                self._group, "health of a gateway", self._watched, gateway, gateway.session, gateway.module.health
            )
        gateway.state, gateway.detail = "connected", ""
        gateway.connected.set()
        return gateway.session

    async def _watched(self, gateway: Gateway, session: GatewaySession, health: HealthChecks) -> None:
        """Ask again and again how a gateway is, and end its connection where it is not well any more."""
        failures = 0
        while not session.lost:
            await anyio.sleep(health.interval_ms / 1000)
            why = await session.check(health.timeout_ms)
            failures = failures + 1 if why else 0
            if gateway.session is session:
                gateway.health = f"failed {failures} times: {why}" if why else "ok"
            if failures >= health.failures and not session.lost:
                log.warning("a gateway is not well and is ended", gateway=gateway.module.id, reason=why)
                session.lose(f"it failed {failures} health checks: {why}")

    async def _fed(self, gateway: Gateway, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                await self._feed.run(gateway.module, self.send_message, self._await_connection)
            except Exception:
                log.exception("a gateway is not fed any more", gateway=gateway.module.id)
                gateway.detail = "it is not fed any more, by an internal error; see the daemon's log"

    async def _await_connection(self, gateway_id: str) -> None:
        gateway = self._known.get(gateway_id)
        with anyio.move_on_after(CONNECT_SECONDS):
            if gateway is not None:
                await gateway.connected.wait()

    async def _run(self, gateway: Gateway, scope: anyio.CancelScope, ended: anyio.Event) -> None:
        def over(why: str) -> None:
            if gateway.scope is scope:
                gateway.session = None
                gateway.state, gateway.detail = "starting", clean_line(why, 300)

        home = self._scratch_root / f"gateway-{gateway.module.id}-{secrets.token_hex(4)}"
        runner = StdioGateway(gateway.module, self._sandbox, home, os.environ, lambda: self._session(gateway), over)
        try:
            with scope:
                await runner.run()
                if gateway.scope is scope:
                    gateway.state = "failed"
                    gateway.connected.set()
        except Exception:
            log.exception("a gateway broke", gateway=gateway.module.id)
            gateway.state, gateway.detail = "failed", "an internal error; see the daemon's log"
        finally:
            ended.set()

    def _token_of(self, gateway_id: str) -> str:
        self._tokens.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._tokens / f"{gateway_id}.token"
        kept = read_private(path)
        if kept is None:
            kept = make_private(path, secrets.token_urlsafe(32).encode())
        return kept.decode()


async def _told(module: GatewayModule, event: GatewayEvent) -> None:
    log.info("a gateway tells", gateway=module.id, name=event.name, payload=clean(str(event.payload), 500))
