"""Makes the faces of a daemon, which translate what comes in into operations (DESIGN 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from sublet.a2a_server.context import A2AContext
from sublet.a2a_server.face import A2AFace
from sublet.app.areas import Areas
from sublet.daemon.config.paths import Home
from sublet.daemon.control.server import ControlServer
from sublet.daemon.operations.table import OperationTable
from sublet.daemon.ports.face import Face
from sublet.daemon.ports.peer_link import BusAddress
from sublet.daemon.process.kept_face import KeptFace
from sublet.daemon.web_access.logins import WebLogins
from sublet.mcp_server.context import McpContext
from sublet.mcp_server.host import McpFace
from sublet.web.context import WebContext
from sublet.web.face import WebFace


@dataclass(slots=True)
class Sockets:
    """Whose directory for sockets is used now; it changes where that directory is taken away from the daemon."""

    home: Home


@dataclass(frozen=True, slots=True)
class Faces:
    """The faces, not started yet."""

    a2a: KeptFace
    mcp: KeptFace
    web: KeptFace | None
    control: KeptFace

    @property
    def all(self) -> list[KeptFace]:
        """Return them in the order in which they start."""
        return [self.a2a, self.mcp, *([self.web] if self.web is not None else []), self.control]


def make_faces(
    areas: Areas,
    table: OperationTable,
    web_logins: WebLogins,
    sockets: Sockets,
    key_changed: Callable[[str, str], None],
) -> Faces:
    """Return the faces.

    Args:
        areas: what they reach beside operations.
        table: the operations.
        web_logins: who may log in on the web page.
        sockets: where their sockets are.
        key_changed: is told a node id and a name where somebody else's key came with them.
    """
    places = areas.ground.places
    a2a_context, identify = _a2a_context(areas, key_changed), areas.ground.callers.agent

    def a2a(before: str | None) -> Face:
        port = None if before is None or a2a_context.public_url else urlsplit(before).port
        return A2AFace(a2a_context if port is None else replace(a2a_context, port=port))

    def mcp(_: str | None) -> Face:
        return McpFace(
            McpContext(
                called_by=table.called_by,
                calls=areas.governance.calls,
                identify=identify,
                version=version("sublet"),
                runtime_dir=Path(sockets.home.runtime_dir),
                services=areas.ground.services,
                web_page=places.web_page,
            )
        )

    def control(_: str | None) -> Face:
        return ControlServer(sockets.home, table, identify)

    return Faces(
        a2a=KeptFace("a2a", a2a, places.a2a),
        mcp=KeptFace("mcp", mcp, places.mcp),
        web=_web_page(areas, table, web_logins),
        control=KeptFace("control socket", control, places.control),
    )


def _web_page(areas: Areas, table: OperationTable, logins: WebLogins) -> KeptFace | None:
    """Return the web page; None where it is switched off."""
    ground, wanted = areas.ground, areas.ground.config.web
    if wanted is None:
        return None
    port = wanted.free_port(ground.last_ports.web)
    context = WebContext(table, logins, state_dir=ground.state_dir, port=port, chosen=wanted.chosen)

    def page(before: str | None) -> Face:
        port = None if before is None else urlsplit(before).port
        return WebFace(context if port is None else replace(context, port=port))

    return KeptFace("web page", page, ground.places.web)


def _a2a_context(areas: Areas, key_changed: Callable[[str, str], None]) -> A2AContext:
    ground, peering = areas.ground, areas.peering
    gate = areas.governance.gate
    config, identity, tls, bus = ground.config, ground.identity, ground.tls, ground.bus_port.number
    return A2AContext(
        executor=areas.working.executor,
        messages=areas.agents.messages,
        pairing=peering.pairing,
        whereabouts=peering.whereabouts,
        key=identity.key,
        node_id=identity.node_id,
        fingerprint=identity.fingerprint,
        version=version("sublet"),
        agents=lambda: [one for one in ground.offer.now() if gate.public(one.id)],
        find_peer=peering.peers.find_known,
        key_changed=key_changed,
        find_token=peering.tokens.find,
        nonces=areas.governance.nonces,
        host=config.a2a.host,
        port=config.a2a.free_port(ground.last_ports.a2a),
        public_url=config.public_url,
        tls=(tls.certificate, tls.key) if tls else None,
        state_dir=ground.state_dir,
        bus=None if bus is None else BusAddress(bus),
        admits=peering.homes.admits,
    )
