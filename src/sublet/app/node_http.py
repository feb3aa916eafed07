"""HTTP between nodes that are not paired: served while federation.toml switches it on, and again where that changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import anyio
import structlog
from nacl.signing import SigningKey

from sublet.federation.ports import What
from sublet.federation.post import Own
from sublet.federation.settings import HttpSettings, PeerSettings, Settings, split_listen
from sublet.node_http.calling import NodeCaller
from sublet.node_http.certificates import NodeCertificates
from sublet.node_http.face import NodeContext, NodeFace
from sublet.node_http.gate import GateParts, make_gate
from sublet.node_http.listed import ListedNodes
from sublet.protocol.errors import SubletError

RENEWAL_LOOK_SECONDS: Final = 3_600.0
"""How often it is looked whether the certificate is old."""
RETRY_SECONDS: Final = 10.0
"""How long it is waited where the port can't be had, or no certificate be made."""

log = structlog.get_logger(__name__)


class HasNodeId(Protocol):
    """A paired daemon."""

    @property
    def node_id(self) -> str:
        """Of its key."""


class NodeHttp:
    """Its parts, and how it stands with them. ``begin`` comes before ``serve``.

    Args:
        key: this node's.
        keys_dir: private directory, in which certificates are for the moment in which they are read.
        settings: as they are now.
        paired: the paired daemons.
    """

    def __init__(
        self,
        key: SigningKey,
        keys_dir: Path,
        settings: Callable[[], Settings],
        paired: Callable[[], Iterable[HasNodeId]],
    ) -> None:
        self._key = key
        self._keys_dir = keys_dir
        self._settings = settings
        self._certificates: NodeCertificates | None = None
        self._own: Own | None = None
        self._answer: Callable[[What, bytes, str], Awaitable[bytes]] | None = None
        self._known: Callable[[], object] = _nothing
        self._changed = anyio.Event()
        self._keys = anyio.Event()
        self.address = ""
        """Where other nodes reach this one; empty for nowhere."""
        self.remark = ""
        """Why it is reached nowhere, although it is switched on."""
        self.listed = ListedNodes(settings, lambda: {one.node_id for one in paired()}, self._learned)
        self.caller = NodeCaller(key, self.listed, self._certificates_now)

    def begin(
        self, own: Own, answer: Callable[[What, bytes, str], Awaitable[bytes]], known: Callable[[], object]
    ) -> None:
        """Say who answers, and who is told that other nodes are known now.

        Args:
            own: this node.
            answer: takes what came, and by which node's key; returns what is answered.
            known: is called where other nodes are known.
        """
        self._own, self._answer, self._known = own, answer, known

    def look(self) -> None:
        """Look at once what the settings say now."""
        self._changed.set()
        self._keys.set()
        self.caller.look()

    def why_not(self, peer: PeerSettings) -> str:
        """``OverHttp.why_not``."""
        return self.listed.why_not(peer)

    async def serve(self) -> None:
        """Serve while it is switched on, until cancelled."""
        while True:
            self._changed, http = anyio.Event(), self._wanted()
            if http is None:
                self.remark = ""
                await self._changed.wait()
                continue
            if self._certificates is None:
                self._certificates = await asyncio.to_thread(NodeCertificates, self._keys_dir, self._key)
            async with anyio.create_task_group() as group:
                for run in (self._keep_certificates, self.caller.serve):
                    group.start_soon(run)
                group.start_soon(self._listen, http, self._certificates)
                while self._wanted() == http:
                    await self._changed.wait()
                    self._changed = anyio.Event()
                group.cancel_scope.cancel()
            await self.caller.forget()

    def _wanted(self) -> HttpSettings | None:
        return self._settings().http if self.listed.on else None

    async def aclose(self) -> None:
        """Close the connections to other nodes, which are needed until all has been said."""
        await self.caller.aclose()

    async def _listen(self, http: HttpSettings, certificates: NodeCertificates) -> None:
        assert self._own is not None, "begin comes first"
        assert self._answer is not None, "begin comes first"
        host, port = split_listen(http.listen)
        gate = GateParts(
            name=self._own.name,
            fingerprint=self._own.fingerprint,
            admits=self.listed.admits,
            learn=self.listed.learn,
            answer=self._answer,
            wall=time.time,
        )
        while True:
            tls = (lambda: certificates.server) if http.tls else None
            face = NodeFace(NodeContext(make_gate(gate), host, port, tls, http.allow_plaintext))
            try:
                face.start()
                self.address, self.remark = face.address, ""
                log.info("nodes are served over HTTP", address=face.address)
                await face.serve()
            except SubletError as error:
                self.remark = error.message
                log.error("nodes can't be served over HTTP", reason=error.message, hint=error.hint)
            finally:
                self.address = ""
                face.release()
            await anyio.sleep(RETRY_SECONDS)

    async def _keep_certificates(self) -> None:
        """Let in whoever is listed now, with a certificate that is good for long."""
        while True:
            self._keys = anyio.Event()
            assert self._certificates is not None, "it was made before"
            pause = RENEWAL_LOOK_SECONDS
            try:
                await asyncio.to_thread(self._certificates.trust, self.listed.keys(), datetime.now(UTC))
            except OSError as error:  # a full disk; what there is holds, and the gate refuses who was taken out
                log.error("certificates of nodes can't be made, and those of before hold", reason=str(error))
                pause = RETRY_SECONDS
            with anyio.move_on_after(pause):
                await self._keys.wait()

    def _learned(self) -> None:
        self._keys.set()
        self._known()

    def _certificates_now(self) -> NodeCertificates | None:
        return self._certificates


def _nothing() -> None:
    return
