"""The gateways of this daemon: started, connected, stopped, and what passes through them."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
import structlog
from anyio.abc import TaskGroup

from sublet.daemon.api.gateway_models import (
    GatewayDetail,
    GatewayList,
    GatewayProblem,
    GatewaySent,
    GatewayView,
    SendToGateway,
    State,
)
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.modules.gateway_server import HOST, GatewayServer
from sublet.daemon.operations import operations
from sublet.daemon.storage.files import make_private, read_private
from sublet.policy.model import Action, Subject
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.gateway import DeliveryMode, GatewayEvent, GatewayInput
from sublet.protocol.text import clean, clean_line
from sublet.supervisor.agent import AgentRunContext
from sublet.supervisor.gateways.module_file import GatewayModule, GatewaySet, read_gateways
from sublet.supervisor.gateways.session import GatewaySession
from sublet.supervisor.gateways.stdio import StdioGateway
from sublet.supervisor.model import Sandbox

GATEWAYS: Final = "gateways"
CONNECT_SECONDS: Final = 5.0
"""How long is waited for a gateway that is started because something is to be sent."""
STOP_SECONDS: Final = 20.0

log = structlog.get_logger(__name__)

Handle = Callable[[GatewayModule, GatewayInput], Awaitable[str]]


class _Gateway:
    """One gateway as it is now."""

    def __init__(self, module: GatewayModule) -> None:
        self.module = module
        self.state: State = "stopped"
        self.detail = ""
        self.token = ""
        self.session: GatewaySession | None = None
        self.scope: anyio.CancelScope | None = None
        self.ended = anyio.Event()
        self.connected = anyio.Event()


class Gateways:
    """Implements ``Doors`` and ``ModuleHub``. ``serve`` must run for anything to be started.

    Args:
        root: where their modules lie.
        state_dir: where their tokens are kept.
        scratch_root: below which their programs have their directories.
        sandbox: confines them.
        handle: has the supervisor see to an input.
    """

    def __init__(self, root: Path, state_dir: Path, scratch_root: Path, sandbox: Sandbox, handle: Handle) -> None:
        self.root = root
        self._tokens = state_dir / GATEWAYS
        self._scratch_root = scratch_root
        self._sandbox = sandbox
        self._handle = handle
        self._known: dict[str, _Gateway] = {}
        self._problems: dict[str, str] = {}
        self._group: TaskGroup | None = None
        self._server = GatewayServer(self)
        self._serving = False
        self._changing = asyncio.Lock()

    async def serve(self) -> None:
        """Run gateways until cancelled; each is ended then, and what waits for it is rejected."""
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                await self.use(await asyncio.to_thread(read_gateways, self.root))
                await anyio.sleep_forever()
            finally:
                self._group = None
                for one in self._known.values():
                    if one.session is not None:
                        one.session.lose("the daemon is stopping")

    async def use(self, found: GatewaySet) -> bool:
        """Have exactly these gateways: what changed is started anew, what is gone is stopped. Tell if any was."""
        if self._group is None:
            return False
        async with self._changing:
            return await self._use(found)

    async def _use(self, found: GatewaySet) -> bool:
        before = {name: one.module for name, one in self._known.items()}
        changed = before != dict(found.found) or self._problems != dict(found.problems)
        self._problems = dict(found.problems)
        for name, one in list(self._known.items()):
            if found.found.get(name) != one.module:
                await self.stop(name)
                del self._known[name]
        for name, module in found.found.items():
            if name not in self._known:
                self._known[name] = _Gateway(module)
                if module.enabled and module.load == "start":
                    try:
                        await self.start(name)
                    except SubletError as error:
                        # One that can't be started is no reason to be without the others.
                        log.error("a gateway can't be started", gateway=name, reason=str(error))
                        self._known[name].state, self._known[name].detail = "failed", clean_line(error.message, 300)
        return changed

    def get(self, gateway_id: str) -> _Gateway:
        """Return a gateway.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        one = self._known.get(gateway_id)
        if one is None:
            shown = clean_line(gateway_id, 80)
            raise SubletError(LocalCode.NOT_FOUND, f"there is no gateway {shown!r}", "See: sublet gateway list")
        return one

    async def start(self, gateway_id: str) -> None:
        """Start its program, or let it connect; one that runs goes on.

        Raises:
            SubletError: ``NOT_FOUND``; ``UNAVAILABLE`` where the daemon stops or it is switched off.
        """
        one = self.get(gateway_id)
        if self._group is None:
            raise SubletError(LocalCode.UNAVAILABLE, "the daemon is stopping")
        if not one.module.enabled:
            raise SubletError(LocalCode.UNAVAILABLE, f"gateway {gateway_id} is switched off in its module.json")
        if one.state in ("connected", "starting"):
            return
        one.state, one.detail, one.connected = "starting", "", anyio.Event()
        if one.module.protocol == "stdio":
            one.scope, one.ended = anyio.CancelScope(), anyio.Event()
            self._group.start_soon(self._run, one, one.scope, one.ended)
            return
        one.token = await asyncio.to_thread(self._token_of, gateway_id)
        one.detail = "waits for its connection"
        if not self._serving:
            self._serving = True
            self._group.start_soon(self._server.serve)

    async def stop(self, gateway_id: str) -> None:
        """End its program or its connection; what waits for it is rejected."""
        one = self.get(gateway_id)
        one.state, one.detail, one.token = "stopped", "", ""
        if one.session is not None:
            one.session.lose("it was stopped")
            one.session = None
        if one.scope is not None:
            one.scope.cancel()
            with anyio.move_on_after(STOP_SECONDS):
                await one.ended.wait()
            one.scope = None

    async def send_message(self, gateway_id: str, message: JsonValue, mode: DeliveryMode | None = None) -> JsonValue:
        """Have it deliver a message; one that is to be loaded on demand is started first.

        Raises:
            SubletError: as ``GatewaySession.send``.
        """
        one = self.get(gateway_id)
        if one.session is None and one.module.load == "on_demand":
            await self.start(gateway_id)
        if one.session is None and one.state == "starting":
            with anyio.move_on_after(CONNECT_SECONDS):
                await one.connected.wait()
        if one.session is None:
            why = one.detail or one.state
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"gateway {gateway_id} is not connected: {why}",
                f"Start it: sublet gateway start {gateway_id}",
            )
        return await one.session.send(message, mode)

    def views(self) -> tuple[list[_Gateway], dict[str, str]]:
        """Return all, and what is wrong with others."""
        return [one for _, one in sorted(self._known.items())], self._problems

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
        return [name for name, one in self._known.items() if one.module.enabled and one.module.direction != "input"]

    async def send(self, module: str, text: str, ctx: AgentRunContext) -> str:
        """``ModuleHub.send``."""
        found = await self.send_message(module, {"text": text, "requestId": ctx.request_id})
        return "" if found is None else found if isinstance(found, str) else str(found)

    # Doors

    def token(self, gateway_id: str, protocol: str) -> str | None:
        """``Doors.token``."""
        one = self._known.get(gateway_id)
        return one.token or None if one is not None and one.module.protocol == protocol else None

    def connected(self, gateway_id: str) -> GatewaySession:
        """``Doors.connected``."""
        return self._session(self.get(gateway_id))

    def session(self, gateway_id: str) -> GatewaySession | None:
        """``Doors.session``."""
        return self.get(gateway_id).session

    def lost(self, gateway_id: str, session: GatewaySession, why: str) -> None:
        """``Doors.lost``."""
        session.lose(why)
        one = self._known.get(gateway_id)
        if one is not None and one.session is session:
            one.session = None
            one.state, one.detail, one.connected = "starting", f"{why}; waits for its connection", anyio.Event()

    def _session(self, one: _Gateway) -> GatewaySession:
        assert self._group is not None
        if one.session is not None:
            one.session.lose("it has connected anew")
        one.session = GatewaySession(one.module, self._group, self._handle, _told)
        one.state, one.detail = "connected", ""
        one.connected.set()
        return one.session

    async def _run(self, one: _Gateway, scope: anyio.CancelScope, ended: anyio.Event) -> None:
        def over(why: str) -> None:
            if one.scope is scope:
                one.session = None
                one.state, one.detail = "starting", clean_line(why, 300)

        home = self._scratch_root / f"gateway-{one.module.id}-{secrets.token_hex(4)}"
        runner = StdioGateway(one.module, self._sandbox, home, os.environ, lambda: self._session(one), over)
        try:
            with scope:
                await runner.run()
                if one.scope is scope:
                    one.state = "failed"
                    one.connected.set()
        except Exception:
            log.exception("a gateway broke", gateway=one.module.id)
            one.state, one.detail = "failed", "an internal error; see the daemon's log"
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


@operations
class GatewayService:
    """Implements ``GatewayApi``."""

    def __init__(self, gate: Gatekeeper, gateways: Gateways) -> None:
        self._gate = gate
        self._gateways = gateways

    async def list_gateways(self, caller: Subject) -> GatewayList:
        """``GatewayApi.list_gateways``."""
        await self._gate.ask(caller, Action.GATEWAY_READ, "*")
        found, problems = self._gateways.views()
        return GatewayList(
            gateways=[_view(one) for one in found if not self._gate.hides(caller, Action.GATEWAY_READ, one.module.id)],
            problems=[GatewayProblem(directory=where, problem=what) for where, what in sorted(problems.items())],
        )

    async def get_gateway(self, gateway_id: str, caller: Subject) -> GatewayDetail:
        """``GatewayApi.get_gateway``."""
        # With its token whoever sees it can pose as the gateway.
        await self._gate.ask(caller, Action.GATEWAY_MANAGE, gateway_id)
        one = self._gateways.get(gateway_id)
        return GatewayDetail(**_view(one).model_dump(), url=self._gateways.url(one.module), token=one.token or None)

    async def start_gateway(self, gateway_id: str, caller: Subject) -> GatewayView:
        """``GatewayApi.start_gateway``."""
        await self._gate.ask(caller, Action.GATEWAY_MANAGE, gateway_id)
        await self._gateways.start(gateway_id)
        return _view(self._gateways.get(gateway_id))

    async def stop_gateway(self, gateway_id: str, caller: Subject) -> GatewayView:
        """``GatewayApi.stop_gateway``."""
        await self._gate.ask(caller, Action.GATEWAY_MANAGE, gateway_id)
        await self._gateways.stop(gateway_id)
        return _view(self._gateways.get(gateway_id))

    async def send_to_gateway(self, gateway_id: str, request: SendToGateway, caller: Subject) -> GatewaySent:
        """``GatewayApi.send_to_gateway``."""
        await self._gate.ask(caller, Action.MODULE_DISPATCH, gateway_id)
        output = await self._gateways.send_message(gateway_id, request.message, request.mode)
        return GatewaySent(id=gateway_id, output=output)


def _view(one: _Gateway) -> GatewayView:
    module = one.module
    return GatewayView(
        id=module.id,
        name=module.name,
        direction=module.direction,
        protocol=module.protocol,
        modes=[*module.mode.supported],
        load=module.load,
        state=one.state,
        detail=one.detail,
    )
