"""Implements ``Carrier`` over HTTP: calls the nodes that federation.toml lists, and learns their keys."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Final

import anyio
import httpcore
from nacl.signing import SigningKey

from sublet.federation.ports import KnownNode, What
from sublet.node_http.certificates import NodeCertificates
from sublet.node_http.dialling import Dialler
from sublet.node_http.listed import ListedNodes, Place
from sublet.node_http.routes import MAX_ANSWER_BYTES, ROUTES
from sublet.protocol.bounded_json import BadJson, parse_json
from sublet.protocol.federation.envelope import page_key
from sublet.protocol.federation.request_proof import prove
from sublet.protocol.ids import fingerprint
from sublet.protocol.text import clean_line
from sublet.tasks import start_alone

ASK_SECONDS: Final = 5.0
MAX_CONNECTIONS_OF_NODE: Final = 4
IDLE_SECONDS: Final = 20.0
"""How long a connection is kept that nobody needs: shorter than the other side keeps it."""
LEARNED_AT_ONCE: Final = 8
"""Nodes that are called at one time to learn their keys."""
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
MAX_VALUES: Final = 256
"""JSON values of an answer."""


class NodeCaller:
    """See the module.

    Args:
        key: ours, by which plain requests are signed.
        listed: the nodes.
        certificates: ours.
        wall: Unix seconds.
    """

    def __init__(
        self,
        key: SigningKey,
        listed: ListedNodes,
        certificates: Callable[[], NodeCertificates | None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._key = key
        self._listed = listed
        self._certificates = certificates
        self._wall = wall
        self._pools: dict[Place, httpcore.AsyncConnectionPool] = {}
        self._wake = anyio.Event()
        self._closed = False
        self._chance = random.SystemRandom().random

    def reaches(self, node: KnownNode) -> bool:
        """``Carrier.reaches``: HTTP has no link; whoever is called and does not answer is not reached."""
        there = self._listed.place(node.fingerprint) is not None
        return there and self._certificates() is not None and not self._closed

    async def ask(self, node: KnownNode, what: What, payload: bytes) -> bytes | None:
        """``Carrier.ask``."""
        place = self._listed.place(node.fingerprint)
        return await self._ask(place, what, payload) if place is not None and self.reaches(node) else None

    def look(self) -> None:
        """Look at once whose keys nobody has seen yet."""
        self._wake.set()

    async def serve(self) -> None:
        """Learn the keys of nodes that nobody has seen yet, until cancelled."""
        pause, before = FIRST_PAUSE_SECONDS, frozenset[Place]()
        while True:
            self._wake = anyio.Event()
            unknown = frozenset(self._listed.unknown())
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS) if unknown == before and unknown else FIRST_PAUSE_SECONDS
            before = unknown
            await self._learn_all(unknown)
            await self.forget()
            with anyio.move_on_after(pause * (0.5 + self._chance() / 2) if unknown else None):
                await self._wake.wait()

    async def forget(self) -> None:
        """Close the connections to where no node is called any more."""
        for place in [*self._pools]:
            if self._listed.place(place.fingerprint) != place:
                await self._pools.pop(place).aclose()

    async def aclose(self) -> None:
        """Close all connections, and make no further one."""
        self._closed = True
        while self._pools:
            await self._pools.popitem()[1].aclose()

    async def _learn_all(self, places: Iterable[Place]) -> None:
        """Ask nodes who they are; where that is to be looked at anew, those that have not answered yet are left."""
        limit, wake = anyio.CapacityLimiter(LEARNED_AT_ONCE), self._wake
        async with anyio.create_task_group() as group:

            async def learn() -> None:
                async with anyio.create_task_group() as learning:
                    for place in places:
                        start_alone(learning, "who a node is", self._learn, place, limit)
                group.cancel_scope.cancel()

            group.start_soon(learn)
            await wake.wait()
            group.cancel_scope.cancel()

    async def _learn(self, place: Place, limit: anyio.CapacityLimiter) -> None:
        """Ask a node who it is, by which its key is seen."""
        async with limit:
            raw = await self._ask(place, "server", b"")
        key = page_key(raw) if raw is not None else None
        if key is not None and fingerprint(key) == place.fingerprint:
            self._listed.learn(key)
        elif key is not None:
            self._listed.failed(place.fingerprint, "another key is there than the one that federation.toml lists")

    async def _ask(self, place: Place, what: What, payload: bytes) -> bytes | None:
        why = f"nothing came within {ASK_SECONDS:.0f} s"
        answer: bytes | None = None
        with anyio.move_on_after(ASK_SECONDS):
            # A connection that was kept may have been closed over there meanwhile. The same bytes again are safe.
            for _ in range(2):
                try:
                    answer, why = await self._said(place, what, payload)
                    break
                except (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError) as error:
                    why = f"the connection was cut: {_words(error)}"
                except ssl.SSLError:  # it has read our certificate by now, and cut the connection
                    why = "it does not let us in: does its federation.toml list this node's fingerprint and url?"
                    break
                except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
                    why = f"it is not reached: {_words(error)}"
                    break
        self._listed.failed(place.fingerprint, why)
        return answer

    async def _said(self, place: Place, what: What, payload: bytes) -> tuple[bytes | None, str]:
        """Return what a node says, or None and why that is no answer. Redirects are none, wherever they lead."""
        method, path = ROUTES[what]
        headers = [("Host", f"{_bracketed(place.host)}:{place.port}"), ("Accept-Encoding", "identity")]
        if what == "event":
            headers += [("Content-Type", "application/json"), ("Content-Length", str(len(payload)))]
        if not place.tls:
            proof = prove(self._key, method, path, place.fingerprint, payload, self._wall())
            headers.append(("Authorization", proof))
        url = httpcore.URL(
            scheme=b"https" if place.tls else b"http",
            host=place.host.encode("ascii"),
            port=place.port,
            target=path.encode("ascii"),
        )
        content = payload if what == "event" else None
        async with self._pool(place).stream(method, url, headers=headers, content=content) as response:
            if 300 <= response.status < 400:
                return None, "it redirects, and redirects are not followed"
            kinds = {name.lower(): value for name, value in response.headers}
            if kinds.get(b"content-encoding", b"identity") != b"identity":
                return None, "its answer is packed, which was not asked for"
            body = bytearray()
            async for chunk in response.aiter_stream():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    return None, f"its answer is larger than {MAX_ANSWER_BYTES} bytes"
        try:
            said = parse_json(bytes(body), max_bytes=MAX_ANSWER_BYTES, values=MAX_VALUES)
        except BadJson:
            said = None
        if not isinstance(said, dict) or not ("accepted" in said or "verify_keys" in said):
            return None, f"its answer is none of a node, with status {response.status}"
        return bytes(body), ""

    def _pool(self, place: Place) -> httpcore.AsyncConnectionPool:
        pool = self._pools.get(place)
        if pool is None:
            pool = self._pools[place] = httpcore.AsyncConnectionPool(
                ssl_context=self._context(),
                max_connections=MAX_CONNECTIONS_OF_NODE,
                keepalive_expiry=IDLE_SECONDS,
                network_backend=Dialler(place, self._context, self._listed.learn),
            )
        return pool

    def _context(self) -> ssl.SSLContext:
        """Return what TLS is begun with now: a certificate that is new holds for the next connection."""
        certificates = self._certificates()
        if certificates is None:
            raise httpcore.ConnectError("this node has no certificate yet")
        return certificates.client


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _words(error: Exception) -> str:
    return clean_line(str(error), 200) or type(error).__name__
