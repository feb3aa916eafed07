"""The gate: who may come in at all. Nothing behind it runs for a caller that it does not know (DESIGN 4.2, 9)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import structlog
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sublet.a2a_server.caller import SCOPE_KEY, Caller
from sublet.a2a_server.hosts import AllowedHosts
from sublet.a2a_server.refusal import http_error
from sublet.a2a_wire.assertion import AssertionRejected, Claim, read_claim, verify_assertion
from sublet.daemon.net.http_connection import mark_known
from sublet.daemon.ports.given_to_a2a import KnownPeer
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.home_token import is_copy
from sublet.protocol.ids import FINGERPRINT
from sublet.protocol.signing import SharedNonces

log = structlog.get_logger(__name__)

MAX_REQUESTS_PER_CALLER = 64
_MAX_TOKEN_CHARS = 4_096
MAX_REPORTED_KEYS = 256
"""Changed keys are reported once each, and no more than this many: whoever floods us must not flood the log."""

OpenPaths: TypeAlias = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the gate checks callers against.

    ``find_peer`` maps a node id to the paired peer, ``find_token`` a bearer secret to its token's name, ``key_changed``
    is told node id and presented fingerprint of a peer that comes with another key than the pinned one.
    """

    fingerprint: str
    find_peer: Callable[[str], KnownPeer | None]
    find_token: Callable[[str], str | None]
    key_changed: Callable[[str, str], None]
    nonces: SharedNonces
    admits: Callable[[str, str], bool] = lambda _node_id, _home: True
    """Tells whether a peer is let in from the home that it names, or that is a copy of another one."""


class _AccessGone(Exception):
    """The caller was let in, but would not be any more."""


class Refused(Exception):
    """The caller is not let in."""

    def __init__(self, status: int, error: SubletError, headers: dict[str, str] | None = None) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error
        self.headers = headers

    def response(self) -> JSONResponse:
        """Return what the caller is told."""
        return http_error(self.status, self.error, self.headers)


class Authenticator:
    """Turns an ``Authorization`` header into a caller.

    Args:
        credentials: what is known of callers.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._known = credentials
        self._reported: set[tuple[str, str]] = set()

    def identify(self, header: str, source_host: str) -> Caller:
        """Return the caller, who can be asked whether it would still be let in.

        Raises:
            Refused: 401, saying why and what to do.
        """
        scheme, _, token = header.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN_CHARS:
            raise _unauthorized(
                "this agent answers authenticated callers only",
                "Send `Authorization: Bearer TOKEN`; the owner makes tokens with `sublet token create`.",
            )
        try:
            claim = read_claim(token)
            if claim is not None:
                return self._peer(token, claim, source_host)
        except AssertionRejected as error:
            raise _unauthorized(str(error), "Check the clocks of both machines, or pair again.") from None
        except SubletError as error:  # the replay memory is full, so nobody can be let in safely
            raise Refused(503, error, {"Retry-After": "60"}) from None
        name = self._known.find_token(token)
        if name is None:
            raise _unauthorized(
                "the token is unknown, expired or revoked", "The owner makes tokens with `sublet token create`."
            )
        return Caller(name, None, source_host, lambda: self._known.find_token(token) == name, _mark(token))

    def _peer(self, token: str, claim: Claim, source_host: str) -> Caller:
        peer = self._known.find_peer(claim.node_id)
        if peer is None:
            raise _unauthorized(
                "this daemon is not paired with the caller", "Pair again: `sublet pair` here, `sublet peers add` there."
            )
        if claim.key_fingerprint != peer.fingerprint:
            self._report(claim)
            error = SubletError(
                LocalCode.KEY_CHANGED,
                "the caller's key is not the one that was pinned when it was paired",
                "If it was changed on purpose, remove the peer and pair again.",
            )
            raise Refused(401, error, {"WWW-Authenticate": 'Bearer error="invalid_token"'})
        assertion = verify_assertion(
            token, signer=peer.public_key, audience=self._known.fingerprint, issuer=claim.node_id
        )
        if not self._known.admits(claim.node_id, assertion.home):
            raise Refused(401, is_copy(), {"WWW-Authenticate": 'Bearer error="invalid_token"'})
        # Prefixed, so that a token's id can never use up a message's nonce.
        caller = Caller(peer.name, peer, source_host, lambda: self._known.find_peer(claim.node_id) == peer)
        nonces = self._known.nonces.of(caller.owner)
        if not nonces.first_seen(f"jwt:{assertion.token_id}", assertion.issued_at):
            raise AssertionRejected("the peer assertion was used before")
        return caller

    def _report(self, claim: Claim) -> None:
        seen = (claim.node_id, claim.key_fingerprint)
        if seen in self._reported or len(self._reported) >= MAX_REPORTED_KEYS:
            return
        if FINGERPRINT.fullmatch(claim.key_fingerprint):
            self._reported.add(seen)
            log.error("a peer came with another key", node_id=claim.node_id, fingerprint=claim.key_fingerprint)
            self._known.key_changed(*seen)


class CallerGate:
    """ASGI middleware: Host and Origin first, then the caller, then its share of the server.

    Args:
        app: what is behind the gate.
        hosts: names that a request may use for us.
        authenticator: who callers are.
        open_paths: methods per path that need no authentication.
    """

    def __init__(self, app: ASGIApp, hosts: AllowedHosts, authenticator: Authenticator, open_paths: OpenPaths) -> None:
        self._app = app
        self._hosts = hosts
        self._authenticator = authenticator
        self._open = open_paths
        self._active: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        try:
            self._check_names(scope)
            if scope["method"] in self._open.get(scope["path"], ()):
                await self._app(scope, receive, send)
                return
            headers = Headers(scope=scope)
            caller = self._authenticator.identify(headers.get("authorization", ""), _source(scope))
            mark_known(scope.get("state"))
            if self._active[caller.owner] >= MAX_REQUESTS_PER_CALLER:
                raise Refused(
                    429,
                    SubletError(ErrorCode.DECLINED, "too many requests at once", "Close some streams first."),
                    {"Retry-After": "5"},
                )
        except Refused as refused:
            await refused.response()(scope, receive, send)
            return

        async def checked_send(message: Message) -> None:
            if not caller.still_known():
                raise _AccessGone
            await send(message)

        self._active[caller.owner] += 1
        try:
            await self._app({**scope, SCOPE_KEY: caller}, receive, checked_send)
        except* _AccessGone:
            # A stream of a peer that was removed, or of a revoked token, ends with its next event.
            log.warning("a caller has lost its access, and its stream was cut", caller=caller.owner)
        finally:
            self._active[caller.owner] -= 1
            if not self._active[caller.owner]:
                del self._active[caller.owner]

    def _check_names(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        local_address, local_port = scope["server"]
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._hosts.allows_host(hosts[0], local_address):
            raise Refused(
                421,
                SubletError(
                    LocalCode.POLICY_DENIED,
                    "the Host header does not name this agent",
                    "Use the URL of its card; its owner can set another one as the public URL.",
                ),
            )
        origins = headers.getlist("origin")
        if any(not self._hosts.allows_origin(origin, local_address, local_port) for origin in origins):
            raise Refused(
                403,
                SubletError(
                    LocalCode.POLICY_DENIED, "requests from web pages are not accepted", "Call from a program instead."
                ),
            )


def _mark(token: str) -> str:
    """Return what tells a token from others of its name, and nothing of its secret."""
    return hashlib.sha256(b"owner\0" + token.encode("utf-8", "replace")).hexdigest()[:16]


def _source(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _unauthorized(message: str, hint: str) -> Refused:
    challenge = {"WWW-Authenticate": 'Bearer realm="sublet"'}
    return Refused(401, SubletError(ErrorCode.AUTH_FAILED, message, hint), challenge)
