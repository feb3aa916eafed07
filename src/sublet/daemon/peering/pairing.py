"""Pairing: a one-time link on one side, used on the other, pins both keys (DESIGN 4.2, 9.9).

A token is used up in the same transaction that pins the caller's key. If the answer is lost on its way, the token
stays used up: this side then knows the caller, the caller does not know this side, and pairing again with a new link
mends it.
"""

from __future__ import annotations

import secrets
import socket
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, fields

import anyio
import structlog

from sublet.daemon.api.peers import DEFAULT_LINK_SECONDS, PairLink, PairLinkView, PeerView
from sublet.daemon.net.addresses import on_loopback
from sublet.daemon.net.base_url import check_url
from sublet.daemon.peering.identity import Identity, tls_fingerprint
from sublet.daemon.peering.made_links import link_name, made_links, view_of
from sublet.daemon.peering.pair_link import PairingLink, parse_link
from sublet.daemon.peering.pair_proof import id_hash, mac_key, prove_reply, prove_request, reply_holds, request_holds
from sublet.daemon.peering.peer_names import Spoken
from sublet.daemon.peering.peers import Peer, PeerStore, key_changed, pin
from sublet.daemon.ports.given_to_a2a import PairReply, PairRequest
from sublet.daemon.ports.peer_link import PeerLink
from sublet.daemon.storage.event_log import Recorder
from sublet.daemon.storage.journal import Journal
from sublet.daemon.times import rfc3339
from sublet.protocol import ids
from sublet.protocol.encoding import b64, unb64
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKind

MAX_LINK_SECONDS = 24 * 3600
MAX_LINKS = 16
"""Links that may be open at one time."""
MAX_WRONG_PROOFS = 5
"""After so many wrong proofs a link is void, though guessing 192 bits would not get far anyway."""
MAX_FIELD_CHARS = 2_048
MAX_CERTIFICATE_CHARS = 16_384
_ID_BYTES = 9
_SECRET_BYTES = 24
_NONCE_BYTES = 24

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OwnAddress:
    """How this daemon is reached; ``tls_certificate`` (PEM) is None without TLS of its own."""

    a2a_url: str
    tls_certificate: str | None


class PairingService:
    """Both halves of pairing.

    Args:
        identity: our keys.
        journal: holds links and peers.
        peers: where keys are pinned.
        peer_link: carries our request to the other side, and checks the certificate that the link names.
        own_address: how we are reached, asked for when it is needed, since ports may be known only then.
        spoken: what of the configuration names a peer, as ``peer_names.give_name`` asks.
        clock: Unix time in seconds.
    """

    def __init__(
        self,
        identity: Identity,
        journal: Journal,
        peers: PeerStore,
        peer_link: PeerLink,
        own_address: Callable[[], OwnAddress],
        spoken: Callable[[], Spoken] = lambda: lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._identity = identity
        self._journal = journal
        self._peers = peers
        self._peer_link = peer_link
        self._own_address = own_address
        self._spoken = spoken
        self._clock = clock

    async def create_link(self, ttl_seconds: int = DEFAULT_LINK_SECONDS, by: str = "you") -> PairLink:
        """Make a one-time link.

        Args:
            ttl_seconds: 1 to ``MAX_LINK_SECONDS``.
            by: who makes it, as it is told.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` for another time, ``UNAVAILABLE`` where ``MAX_LINKS`` are open.
        """
        if not 1 <= ttl_seconds <= MAX_LINK_SECONDS:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"a pairing link can't be valid for {ttl_seconds} s",
                f"Choose between 1 and {MAX_LINK_SECONDS} seconds.",
            )
        own = self._own_address()
        now = self._clock()
        link = PairingLink(
            a2a_url=check_url(own.a2a_url),
            fingerprint=self._identity.fingerprint,
            tls_fingerprint=_channel(own) or None,
            token_id=secrets.token_urlsafe(_ID_BYTES),
            secret=secrets.token_urlsafe(_SECRET_BYTES),
            expires_at=int(now + ttl_seconds),
        )

        named, expires = link_name(link.token_id), rfc3339(link.expires_at)

        def work(connection: sqlite3.Connection, events: Recorder) -> int:
            connection.execute("DELETE FROM pair_tokens WHERE expires_at <= ?", (now,))
            if connection.execute("SELECT count(*) FROM pair_tokens").fetchone()[0] >= MAX_LINKS:
                raise SubletError(
                    LocalCode.UNAVAILABLE, f"{MAX_LINKS} pairing links are open already", "Use one, or let it expire."
                )
            connection.execute(
                "INSERT INTO pair_tokens (id_hash, mac_key, expires_at, attempts) VALUES (?, ?, ?, 0)",
                (id_hash(link.token_id), mac_key(link.secret), link.expires_at),
            )
            return events.add(EventKind.PAIR_LINK_MADE, None, {"link": named, "by": by, "expires_at": expires}).seq

        cursor = await self._journal.events.transact(work)
        return PairLink(
            link=str(link),
            expires_at=expires,
            a2a_url=link.a2a_url,
            fingerprint=link.fingerprint,
            id=named,
            cursor=cursor,
        )

    async def links(self) -> list[PairLinkView]:
        """Return the links that were made here last, the newest first, and who used each."""
        told, hashes = await self._journal.events.read(made_links)
        now = self._clock()
        return [view_of(one, hashes, self._peers.list(), now) for one in told]

    async def add(self, link: str, name: str) -> PeerView:
        """Use the other side's link: prove that we have it, check that the answer does too, and pin the key.

        Args:
            link: as ``sublet pair`` printed it.
            name: what to call the peer here.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` for a malformed link or name or one of our own, ``TOKEN_INVALID`` for an
                expired or used one, ``KEY_CHANGED`` where the name is pinned to another key or another key answers,
                ``PEER_UNREACHABLE``.
        """
        parsed = self._own_checks(parse_link(link), name)
        known = self._peers.get(name)
        if known is not None and known.fingerprint != parsed.fingerprint:
            await self._peers.report_changed_key(name, parsed.fingerprint)
            raise key_changed(name, known.fingerprint, parsed.fingerprint)
        token, channel = mac_key(parsed.secret), parsed.tls_fingerprint or ""
        bare = self._request(parsed)
        request = prove_request(bare, self._identity.key, token, recipient=parsed.fingerprint, channel=channel)
        link_url = parsed.a2a_url
        try:
            reply = await self._peer_link.pair(parsed.a2a_url, request, tls_fingerprint=parsed.tls_fingerprint)
        except SubletError as error:
            # What a newcomer meets first: the link of a daemon that listens to its own machine alone, used on another.
            if error.code not in (LocalCode.PEER_UNREACHABLE, LocalCode.TOKEN_INVALID) or not on_loopback(link_url):
                raise
            raise SubletError(
                error.code,
                error.message,
                f"{error.hint} {link_url} is this machine. To pair with another one, start the daemon there by "
                "`sublet up --a2a 0.0.0.0:8642` and make a new link.",
                from_peer=error.from_peer,
            ) from None
        public = unb64(reply.public_key, 32)
        if public is None or ids.fingerprint(public) != parsed.fingerprint:
            shown = ids.fingerprint(public) if public is not None else "no key at all"
            await self._peers.report_changed_key(name, shown)
            raise SubletError(
                LocalCode.KEY_CHANGED,
                f"the daemon at {parsed.a2a_url} shows {shown}, but the link names {parsed.fingerprint}",
                "Somebody may be posing as it. Check the address, and ask for a new link on a way you trust.",
            )
        if not reply_holds(reply, request, token, channel=channel) or reply.node_id != ids.node_id(public):
            raise SubletError(
                LocalCode.TOKEN_INVALID, "the answer does not prove that it knows the link", "Ask for a new link."
            )
        if _fingerprint_of(reply.tls_certificate) != parsed.tls_fingerprint:
            raise SubletError(
                LocalCode.KEY_CHANGED, "the answer shows another certificate than the link names", "Ask for a new link."
            )
        # The address of the link, not the one in the answer: it is what the person saw and what has worked.
        before = self._peers.by_node_id(reply.node_id)
        peer = await self._peers.add(Peer(name, public, parsed.a2a_url, reply.tls_certificate))
        was = before.name if before is not None and before.name != peer.name else None
        return peer.view().model_copy(update={"was": was})

    async def rename(self, name: str, new_name: str) -> PeerView:
        """Call a peer something else here: ``PeerStore.rename``.

        Raises:
            SubletError: as ``PeerStore.rename``.
        """
        renamed = await self._peers.rename(name, new_name, self._spoken())
        return renamed.view().model_copy(update={"was": name if renamed.name != name else None})

    async def complete(self, request: PairRequest) -> PairReply:
        """Use up the token and pin the caller's key; the answering half, called for anybody who knocks.

        Raises:
            SubletError: ``TOKEN_INVALID``, always in the same words, for an unknown, used or expired token, a wrong
                proof or a malformed request; ``UNAVAILABLE`` where no more peers fit.
        """
        caller = self._caller(request)
        own = self._own_address()
        channel = _channel(own)
        spoken = self._spoken()

        def work(connection: sqlite3.Connection, events: Recorder) -> tuple[Peer, bytes] | None:
            key = id_hash(request.token_id)
            row = connection.execute("SELECT * FROM pair_tokens WHERE id_hash = ?", (key,)).fetchone()
            if row is None:
                return None
            token: bytes = row["mac_key"]
            in_time = self._clock() < row["expires_at"]
            right = in_time and request_holds(request, token, recipient=self._identity.fingerprint, channel=channel)
            if right or not in_time or row["attempts"] + 1 >= MAX_WRONG_PROOFS:
                connection.execute("DELETE FROM pair_tokens WHERE id_hash = ?", (key,))
            else:
                connection.execute("UPDATE pair_tokens SET attempts = attempts + 1 WHERE id_hash = ?", (key,))
            # Returned and not raised, since an exception would undo the count of wrong proofs.
            used = link_name(request.token_id)
            return (pin(connection, events, caller, spoken=spoken, link=used), token) if right else None

        with anyio.CancelScope(shield=True):
            done = await self._journal.events.transact(work)
            if done is None:
                raise _invalid()
            peer, token = done
            self._peers.remember(peer)
        log.info("a pairing link was used", link=link_name(request.token_id), peer=peer.name, key=peer.fingerprint)
        if peer.note:
            log.warning("a peer is not called what it calls itself", peer=peer.name, reason=peer.note)
        reply = PairReply(
            node_id=self._identity.node_id,
            public_key=b64(self._identity.public_key),
            a2a_url=own.a2a_url,
            tls_certificate=own.tls_certificate,
            proof="",
        )
        return prove_reply(reply, request, self._identity.key, token, channel=channel)

    def _own_checks(self, link: PairingLink, name: str) -> PairingLink:
        if not ids.PEER_NAME.match(name):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                "that can't be the name of a peer",
                "Use lower-case letters, digits, dot, dash and underscore, at most 63 of them.",
            )
        if link.fingerprint == self._identity.fingerprint:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT, "this link is this daemon's own", "Use it on the other machine."
            )
        if link.expires_at <= self._clock():
            raise SubletError(
                LocalCode.TOKEN_INVALID,
                f"the link expired at {rfc3339(link.expires_at)}",
                "Make a new one with `sublet pair` on the other machine; check the clocks if it is fresh.",
            )
        return link

    def _request(self, link: PairingLink) -> PairRequest:
        own = self._own_address()
        # An address on loopback means nothing to another machine, and calling it there would reach something else.
        callable_there = not on_loopback(own.a2a_url) or on_loopback(link.a2a_url)
        return PairRequest(
            token_id=link.token_id,
            node_id=self._identity.node_id,
            public_key=b64(self._identity.public_key),
            a2a_url=own.a2a_url if callable_there else None,
            tls_certificate=own.tls_certificate if callable_there else None,
            name_hint=socket.gethostname()[:MAX_FIELD_CHARS],
            nonce=secrets.token_urlsafe(_NONCE_BYTES),
            proof="",
        )

    def _caller(self, request: PairRequest) -> Peer:
        """Return who the request says it is from, in shape but unproven."""
        for field in fields(request):
            value = getattr(request, field.name)
            limit = MAX_CERTIFICATE_CHARS if field.name == "tls_certificate" else MAX_FIELD_CHARS
            optional = field.name in ("a2a_url", "tls_certificate")
            if not (optional and value is None) and not (isinstance(value, str) and len(value) <= limit):
                raise _invalid()
        public = unb64(request.public_key, 32)
        if public is None or ids.node_id(public) != request.node_id or public == self._identity.public_key:
            raise _invalid()
        try:
            url = check_url(request.a2a_url) if request.a2a_url is not None else None
            _fingerprint_of(request.tls_certificate)
        except SubletError:
            raise _invalid() from None
        if url is not None and on_loopback(url) and not on_loopback(self._own_address().a2a_url):
            # Kept as "can't be called": what would answer there is on our machine, not on the caller's.
            url = None
        return Peer(request.name_hint, public, url, request.tls_certificate)


def _channel(own: OwnAddress) -> str:
    return tls_fingerprint(own.tls_certificate) if own.tls_certificate is not None else ""


def _fingerprint_of(certificate: str | None) -> str | None:
    if certificate is None:
        return None
    try:
        return tls_fingerprint(certificate)
    except ValueError:
        raise SubletError(
            LocalCode.TOKEN_INVALID, "the answer holds a malformed certificate", "Update the other side."
        ) from None


def _invalid() -> SubletError:
    return SubletError(
        LocalCode.TOKEN_INVALID,
        "the pairing link is unknown, used, expired or not proven",
        "Make a new one with `sublet pair` and use it once.",
    )
