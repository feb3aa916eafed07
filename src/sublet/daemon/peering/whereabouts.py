"""Where paired daemons are called: each tells the others after a start, since its ports may be others (DESIGN 4.2).

What is told is signed by the key that was pinned when the two were paired, for one recipient and for now. A peer may
choose its port and its certificate, but no host: that is the one which is known, or the one from which it calls.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Final
from urllib.parse import urlsplit

import anyio
import structlog
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sublet import deadlines
from sublet.daemon.net.addresses import is_loopback, on_loopback
from sublet.daemon.net.base_url import check_url
from sublet.daemon.peering.homes import Homes
from sublet.daemon.peering.identity import Identity, tls_fingerprint
from sublet.daemon.peering.pairing import MAX_CERTIFICATE_CHARS, MAX_FIELD_CHARS, OwnAddress
from sublet.daemon.peering.peers import Peer, PeerStore
from sublet.daemon.ports.given_to_a2a import KnownPeer, Moved
from sublet.daemon.ports.peer_link import PeerLink
from sublet.protocol import ids
from sublet.protocol.canonical import canonical_json
from sublet.protocol.encoding import b64, unb64
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.signing import MAX_CLOCK_SKEW_SECONDS, SIGNATURE_BYTES, SharedNonces

FIRST_WAIT_SECONDS: Final = 5.0
LONGEST_WAIT_SECONDS: Final = 300.0
"""Between attempts to tell those who did not answer."""
TELL_SECONDS: Final = 10.0
TELLERS: Final = 8
EVENT_SECONDS: Final = 60.0
"""One event at most in this time tells of the moves of one peer, so that it pushes nobody's events out."""
_NONCE_BYTES: Final = 24
_DOMAIN: Final = b"sublet/moved/1\n"

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Moves:
    """When an event told of a peer's moves, and how many there were since."""

    told_at: float
    untold: int = 0


class Whereabouts:
    """Tells peers where we are, and takes where they are.

    Args:
        identity: signs.
        peers: whom we tell, and where their addresses are kept.
        link: carries what we tell.
        own_address: how we are reached.
        nonces: so that nothing counts twice.
        clock: Unix time in seconds.
        steady: seconds that never go back.
        homes: told who refuses this home as a copy of another one.
    """

    def __init__(
        self,
        identity: Identity,
        peers: PeerStore,
        link: PeerLink,
        own_address: Callable[[], OwnAddress],
        nonces: SharedNonces,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        homes: Homes | None = None,
    ) -> None:
        self._homes = homes
        self._identity = identity
        self._peers = peers
        self._link = link
        self._own_address = own_address
        self._nonces = nonces
        self._clock = clock
        self._last: dict[str, int] = {}
        """When each peer signed what counts of it now."""
        self._steady = steady
        self._moves: dict[str, _Moves] = {}
        self._look_again = asyncio.Event()
        peers.listeners.append(self._look_again.set)

    async def serve(self) -> None:
        """Tell every peer once, those who can't be reached again and again, until cancelled."""
        heard: set[str] = set()
        wait = FIRST_WAIT_SECONDS
        while True:
            self._look_again.clear()
            await self._tell_all(heard)
            left = [peer for peer in self._peers.list() if self._can_tell(peer) and peer.node_id not in heard]
            with anyio.move_on_after(wait if left else None):
                await self._look_again.wait()  # somebody was paired, or is somewhere else now
                wait = FIRST_WAIT_SECONDS
                continue
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    async def moved(self, peer: KnownPeer, source_host: str, moved: Moved) -> None:
        """Call a peer from now on where it says that it is.

        Args:
            peer: who tells, proven already.
            source_host: the IP address that it calls from.
            moved: what it tells.

        Raises:
            SubletError: ``AUTH_FAILED``: not signed by its pinned key, for somebody else, stale, or told before;
                ``INVALID_ARGUMENT``: an address that can't be, or on a host that is not its own.
        """
        node_id = ids.node_id(peer.public_key)
        if not _holds(moved, peer.public_key, node_id, self._identity.fingerprint):
            raise _denied("what was told of an address is not signed by the caller's pinned key")
        if abs(self._clock() - moved.at) > MAX_CLOCK_SKEW_SECONDS or moved.at < self._last.get(node_id, 0):
            raise _denied("what was told of an address is not of now")
        if not self._nonces.of(f"peer:{node_id}").first_seen(f"moved:{moved.nonce}", moved.at):
            raise _denied("what was told of an address was told before")
        known = self._peers.by_node_id(node_id)
        if known is None:
            raise _denied("the caller is no peer any more")
        url = self._checked(moved, known, source_host)
        self._last[node_id] = moved.at
        if (url, moved.tls_certificate) != (known.a2a_url, known.tls_certificate):
            there = replace(known, a2a_url=url, tls_certificate=moved.tls_certificate)
            await self._peers.move(there, told=self._to_tell(node_id))
            log.info("a peer is somewhere else now", peer=known.name, a2a_url=url)

    def _to_tell(self, node_id: str) -> int | None:
        """Return how many moves of a peer are told of now, this one among them; None while an event is recent."""
        now = self._steady()
        for gone in [one for one in self._moves if self._peers.by_node_id(one) is None]:
            del self._moves[gone]
        moves = self._moves.setdefault(node_id, _Moves(now - EVENT_SECONDS))
        moves.untold += 1
        if now - moves.told_at < EVENT_SECONDS:
            return None
        told, moves.untold, moves.told_at = moves.untold, 0, now
        return told

    def _checked(self, moved: Moved, known: Peer, source_host: str) -> str:
        url = check_url(moved.a2a_url)
        host = urlsplit(url).hostname or ""
        before = urlsplit(known.a2a_url).hostname if known.a2a_url is not None else None
        here = is_loopback(host) and is_loopback(source_host)
        if not here and (is_loopback(host) or host not in (before, source_host)):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"{known.name} tells an address on a host that is neither known for it nor the one it calls from",
                "Pair again: `sublet pair` on its machine, `sublet peers add` here.",
            )
        try:
            if moved.tls_certificate is not None:
                tls_fingerprint(moved.tls_certificate)
        except ValueError:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT, f"{known.name} tells a malformed certificate", "Update it."
            ) from None
        return url

    async def _tell_all(self, heard: set[str]) -> None:
        limit = anyio.CapacityLimiter(TELLERS)

        async def tell(peer: Peer) -> None:
            async with limit:
                if await self._tell(peer):
                    heard.add(peer.node_id)

        async with anyio.create_task_group() as group:
            for peer in self._peers.list():
                if self._can_tell(peer) and peer.node_id not in heard:
                    group.start_soon(tell, peer)

    async def _tell(self, peer: Peer) -> bool:
        """Tell one peer; return False where it is worth another attempt."""
        own = self._own_address()
        bare = Moved(own.a2a_url, own.tls_certificate, int(self._clock()), secrets.token_urlsafe(_NONCE_BYTES))
        moved = _signed(bare, self._identity.key, self._identity.node_id, peer.fingerprint)
        try:
            async with deadlines.timeout(TELL_SECONDS):
                await self._link.tell_moved(peer.address(), moved)
        except Exception as error:
            # Whatever a peer answers with, the others are told.
            if not isinstance(error, SubletError | TimeoutError):
                log.exception("a peer could not be told where this daemon is", peer=peer.name)
                return True
            if isinstance(error, SubletError) and error.code is LocalCode.HOME_COPIED:
                if self._homes is not None:
                    self._homes.refused_by(peer.name)
                return False  # until the other one is gone, or a person has paired the two anew
            if isinstance(error, SubletError) and error.code is not LocalCode.PEER_UNREACHABLE:
                log.info("a peer does not take where this daemon is", peer=peer.name, reason=str(error))
                return True
            return False
        if self._homes is not None:
            self._homes.taken_by(peer.name)
        return True

    def _can_tell(self, peer: Peer) -> bool:
        """Tell whether our address says anything to a peer that we can call: one on loopback, on this machine alone."""
        if peer.a2a_url is None:
            return False
        return not on_loopback(self._own_address().a2a_url) or on_loopback(peer.a2a_url)


def _signed(moved: Moved, key: SigningKey, node_id: str, recipient: str) -> Moved:
    return replace(moved, signature=b64(key.sign(_said(moved, node_id, recipient)).signature))


def _holds(moved: Moved, public_key: bytes, node_id: str, recipient: str) -> bool:
    sizes = len(moved.a2a_url), len(moved.nonce), len(moved.signature)
    if max(sizes) > MAX_FIELD_CHARS or len(moved.tls_certificate or "") > MAX_CERTIFICATE_CHARS:
        return False
    signature = unb64(moved.signature, SIGNATURE_BYTES)
    if signature is None:
        return False
    try:
        VerifyKey(public_key).verify(_said(moved, node_id, recipient), signature)
    except (BadSignatureError, ValueError):
        return False
    return True


def _said(moved: Moved, node_id: str, recipient: str) -> bytes:
    fields = asdict(moved)
    del fields["signature"]
    return _DOMAIN + canonical_json({**fields, "node_id": node_id, "recipient": recipient})


def _denied(message: str) -> SubletError:
    return SubletError(ErrorCode.AUTH_FAILED, message, "Check the clocks of both machines, or pair again.")
