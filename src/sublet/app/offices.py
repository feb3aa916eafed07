"""The area of offices: tools of many Computers for one Agent. Its face is loaded once there is an office."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio

from sublet.app.governance import Governance
from sublet.app.ground import Ground
from sublet.daemon.net.addresses import is_loopback, is_wildcard, outward_address
from sublet.daemon.offices.guard import OfficeGuard
from sublet.daemon.offices.news import OfficeNews
from sublet.daemon.offices.service import OfficeParts, OfficeService
from sublet.daemon.offices.store import OfficeStore
from sublet.daemon.peering.identity import TlsFiles, load_tls
from sublet.office_server.desk import Desk
from sublet.offices.calls import Calls
from sublet.offices.rules import Offices
from sublet.protocol.offices.version import parse_version
from sublet.tasks import Service


@dataclass(frozen=True, slots=True)
class OfficeArea:
    """Its parts.

    Args:
        service: the operations on offices.
        running: serves clients, as soon as there is an office.
        telling: writes down what happens in offices.
    """

    service: OfficeService
    running: Service
    telling: Service


async def make_offices(ground: Ground, governance: Governance) -> OfficeArea:
    """Read which offices there are; nobody is let in yet."""
    store = await OfficeStore.load(ground.journal)
    news = OfficeNews(ground.journal.events)
    offices, calls, place = Offices(news.moved), Calls(), OfficePlace()
    desk = Desk(offices, calls, store, OfficeGuard(governance.gate, governance.calls, news))
    serving = _Serving(ground, store, offices, desk, place)
    return OfficeArea(
        service=OfficeService(OfficeParts(governance.gate, store, offices, calls, desk, place, serving.certificate)),
        running=Service("offices", serving.serve),
        telling=Service("events of offices", news.serve),
    )


class OfficePlace:
    """Implements ``Listens``."""

    def __init__(self) -> None:
        self._address = ""
        self._known = anyio.Event()

    @property
    def address(self) -> str:
        """``Listens.address``."""
        return self._address

    async def listening(self) -> str:
        """``Listens.listening``."""
        while not self._address:
            await self._known.wait()
        return self._address

    def use(self, address: str) -> None:
        """Take note where offices are served; empty for nowhere."""
        self._address = address
        if address:
            self._known.set()
        elif self._known.is_set():  # else somebody may wait for it
            self._known = anyio.Event()


class _Serving:
    """Makes the face and serves it, again and again where it fails."""

    def __init__(self, ground: Ground, store: OfficeStore, offices: Offices, desk: Desk, place: OfficePlace) -> None:
        self._ground = ground
        self._store = store
        self._offices = offices
        self._desk = desk
        self._place = place
        self._port: int | None = None
        self._tls: TlsFiles | None = None

    def certificate(self) -> str | None:
        """Return the certificate that clients have to trust."""
        return None if self._tls is None else self._tls.certificate_pem

    async def serve(self) -> None:
        """Wait for the first office, then serve until cancelled."""
        await self._store.wait()
        wanted, keys_dir = self._ground.config.offices, self._ground.state_dir / "keys"
        if not is_loopback(wanted.host):
            self._tls = await asyncio.to_thread(load_tls, keys_dir, [_outward(wanted.host), socket.gethostname()])
        # Loaded now: Socket.IO costs memory that a daemon without offices does without.
        from sublet.office_server.face import OfficeContext, OfficeFace

        face = OfficeFace(
            OfficeContext(
                offices=self._offices,
                desk=self._desk,
                host=wanted.host,
                shown_host=_outward(wanted.host),
                port=wanted.free_port(self._port),
                version=parse_version(self._ground.config.office_protocol),
                tls=None if self._tls is None else (self._tls.certificate, self._tls.key),
            )
        )
        try:
            await face.start()
            # Whoever has joined looks for it there, if it has to be made again.
            self._port = urlsplit(face.address).port
            self._place.use(face.address)
            await face.serve()
        finally:
            self._place.use("")
            face.release()


def _outward(host: str) -> str:
    """Return the address by which others reach ``host``."""
    return outward_address(ipv6=":" in host) if is_wildcard(host) else host
