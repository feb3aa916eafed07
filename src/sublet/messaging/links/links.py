"""The links of one daemon: who calls us, whom we call, and Zenoh between them.

Zenoh trusts the public web roots beside the authorities that it is given, names all of these in its handshakes, and
can't be told while it runs that a peer was added or removed. So it has no port: for each peer it listens on a socket in
a directory that only its own user enters, and calls such sockets, so it is known from whom something comes. One thread
moves the bytes between these and TLS connections whose keys it has verified itself. Whoever is not pinned any more is
cut at once, who declares what no daemon does is shut out for a while, who says more than its share (``pace``) waits.

Weak: that thread is Python, so while the interpreter is busy with other threads, what passes waits for its turn.
"""

from __future__ import annotations

import itertools
import selectors
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from sublet.messaging.links.declared import DeclaredByPeer
from sublet.messaging.links.doorman import Doorman, Everybody
from sublet.messaging.links.keys import LinkKeys, home_of
from sublet.messaging.links.link import READ, WRITE, Held, Link, Offends, Over, Socket
from sublet.messaging.links.shut_out import ShutOut
from sublet.messaging.links.sockets import Address, listening_at, name_of, private_directory, remove_directory

log = structlog.get_logger(__name__)

MAX_PENDING: Final = 64
"""Connections that are no links yet. Beyond it the oldest makes room: an honest one takes milliseconds."""
PENDING_SECONDS: Final = 5.0
MAX_LINKS_OF_PEER: Final = 4
"""More than one, since who has lost a link may be back before that is noticed here."""
ACCEPTED_A_TURN: Final = 16
PAUSE_SECONDS: Final = 0.1
"""After a failure of the thread, which then goes on."""


class Links:
    """See the module. ``close`` ends the thread; all other methods may be called from any thread.

    Args:
        keys: who may have a link.
        sockets: directory for Zenoh's sockets, made private and emptied. One whose path is too long for a socket, or
            has characters that Zenoh reads otherwise, is replaced by a temporary one.
        listener: the socket at which peers call, which stays the caller's; None where nobody can.
        doorman: knows from which home a peer may come; None for any.

    Raises:
        OSError: the directory can't be made.
    """

    def __init__(self, keys: LinkKeys, sockets: Path, listener: Socket | None, doorman: Doorman | None = None) -> None:
        self._doorman: Doorman = doorman or Everybody()
        self._keys = keys
        self._sockets = private_directory(sockets)
        self._listener = listener.dup() if listener is not None else None
        self._selector = selectors.DefaultSelector()
        self._waker, self._woken = socket.socketpair()
        self._jobs: deque[Callable[[], None]] = deque()
        self._addresses: dict[bytes, Sequence[Address]] = {}
        self._calls = itertools.count()
        self._callers: dict[bytes, Socket] = {}
        self._pending: OrderedDict[Link, None] = OrderedDict()
        self._open: dict[bytes, list[Link]] = {}
        self._busy: list[Link] = []
        self._held = Held()
        self._shut_out = ShutOut()
        self._resting: dict[Socket, tuple[float, bytes | None]] = {}
        """Listeners that are left alone until then, and what they are registered with."""
        self._closing = False
        for one in (self._woken, self._listener):
            if one is not None:
                one.setblocking(False)
                self._selector.register(one, READ)
        self._thread = threading.Thread(target=self._run, name="bus-links", daemon=True)
        self._thread.start()

    def inbound(self, key: bytes) -> str:
        """Return where Zenoh has to listen for a peer alone."""
        return f"unixsock-stream/{self._inbound(key)}"

    def _inbound(self, key: bytes) -> Path:
        return self._sockets / f"{name_of(key)}.in"

    @property
    def trusted(self) -> frozenset[bytes]:
        """The keys of those who are let in."""
        return self._keys.trusted

    def trust(self, peers: Iterable[bytes]) -> None:
        """Let these in and nobody else, and cut whoever is not among them. Returns when they are cut.

        Raises:
            OSError: see ``LinkKeys.trust``; nobody is let in who was not before, and who is not trusted was cut.
        """
        try:
            self._keys.trust(peers)
        finally:
            self._do(self._cut_strangers)

    def call(self, addresses: Mapping[bytes, Sequence[Address]]) -> dict[bytes, str]:
        """Call these peers from now on; return where Zenoh has to connect for each of them.

        Args:
            addresses: of each daemon by its key, tried in turn. Others than before count from the next call on.

        Raises:
            OSError: a socket can't be made.
        """

        def change() -> None:
            self._addresses = dict(addresses)
            for key in self._callers.keys() - addresses.keys():
                self._drop_caller(key)
            for key in addresses.keys() - self._callers.keys():
                self._add_caller(key)

        self._do(change)
        return {key: f"unixsock-stream/{self._path(key)}" for key in addresses}

    def peers(self) -> list[bytes]:
        """Return the key of each link's peer."""
        found: list[bytes] = []
        self._do(lambda: found.extend(link.peer for all_of in self._open.values() for link in all_of if link.peer))
        return found

    def shut_out(self) -> dict[bytes, str]:
        """Return why peers were shut out not long ago, by their keys."""
        return self._shut_out.told()

    def close(self) -> None:
        """End all links, and the thread."""
        self._closing = True
        self._wake()
        self._thread.join()
        for one in (self._waker, self._woken, self._listener):
            if one is not None:
                one.close()
        remove_directory(self._sockets)

    def _do(self, job: Callable[[], None]) -> None:
        """Have the thread do something, and wait until it has."""
        done, failures = threading.Event(), list[Exception]()

        def run() -> None:
            try:
                job()
            except Exception as error:
                failures.append(error)
            finally:
                done.set()

        self._jobs.append(run)
        self._wake()
        while not done.wait(1.0):
            if not self._thread.is_alive():
                return
        if failures:
            raise failures[0]

    def _wake(self) -> None:
        with suppress(OSError):
            self._waker.send(b"\0")

    # All below runs in the thread.

    def _run(self) -> None:
        while not self._closing:
            try:
                self._turn()
            except Exception:  # one link's failure must not be everybody's
                log.exception("a turn of the bus links failed")
                time.sleep(PAUSE_SECONDS)
        for link in [*self._pending, *(one for all_of in self._open.values() for one in all_of)]:
            self._end(link)
        for key in list(self._callers):
            self._drop_caller(key)
        self._selector.close()
        while self._jobs:
            self._jobs.popleft()()

    def _turn(self) -> None:
        ready: dict[Link, dict[Socket, int]] = {link: {} for link in self._busy}
        self._busy = []
        self._rested()
        due = {link: seconds for all_of in self._open.values() for link in all_of if (seconds := link.look_seconds)}
        rests = [*due.values(), *([PAUSE_SECONDS] if self._resting else [])]
        wait = 0 if ready else min(rests, default=1.0 if self._pending else None)
        for key, events in self._selector.select(wait):
            made = key.fileobj
            assert isinstance(made, socket.socket)
            if isinstance(key.data, Link):
                ready.setdefault(key.data, {})[made] = events
            elif isinstance(key.data, bytes):
                self._accept_local(made, key.data)
            elif made is self._woken:
                made.recv(4096)
            else:
                self._accept(made)
        while self._jobs:
            self._jobs.popleft()()
        for link in due:
            ready.setdefault(link, {})
        for link, events_of in ready.items():
            if not link.closed:  # by another one that needed its place
                self._guarded(link, events_of)
        now = time.monotonic()
        while self._pending and (oldest := next(iter(self._pending))).deadline <= now:
            self._end(oldest)

    def _accept(self, listener: Socket) -> None:
        for _ in range(ACCEPTED_A_TURN):
            try:
                made, _ = listener.accept()
            except OSError as error:
                self._rest(listener, None, error)
                return
            link = self._new(made, None, None)
            try:
                link.begin(self._keys.server, server=True)
                link.waits = {link.raw: READ}
                self._watch(link)
            except Over:
                self._end(link)

    def _accept_local(self, listener: Socket, key: bytes) -> None:
        """Call a peer, as Zenoh has called our socket for it."""
        try:
            local, _ = listener.accept()
        except OSError as error:
            self._rest(listener, key, error)
            return
        local.setblocking(False)
        addresses = self._addresses[key]
        if not addresses:
            local.close()
            return
        address = addresses[next(self._calls) % len(addresses)]
        try:
            made = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        except OSError:  # no descriptor is left; Zenoh calls again
            local.close()
            return
        link = self._new(made, key, local)
        with suppress(BlockingIOError):
            try:
                made.connect(address)
            except BlockingIOError:
                raise
            except OSError:
                self._end(link)
                return
        link.waits = {made: WRITE}
        self._watch(link)

    def _rest(self, listener: Socket, data: bytes | None, error: OSError) -> None:
        """Leave a listener alone for a moment, if nothing can be accepted: it would be ready all the time."""
        if not isinstance(error, BlockingIOError):
            self._selector.unregister(listener)
            self._resting[listener] = time.monotonic() + PAUSE_SECONDS, data

    def _rested(self) -> None:
        for listener, (until, data) in list(self._resting.items()):
            if until <= time.monotonic():
                del self._resting[listener]
                self._selector.register(listener, READ, data)

    def _new(self, made: Socket, wanted: bytes | None, local: Socket | None) -> Link:
        made.setblocking(False)
        link = Link(made, wanted, local, time.monotonic() + PENDING_SECONDS)
        self._pending[link] = None
        if len(self._pending) > MAX_PENDING:
            self._end(next(iter(self._pending)))
        return link

    def _guarded(self, link: Link, ready: dict[Socket, int]) -> None:
        try:
            if link.peer is not None:
                if link.move(ready):
                    self._busy.append(link)
            elif self._shaken(link):
                self._prove(link)
            self._watch(link)
        except Offends as offence:
            self._offended(link, str(offence))
        except Over:
            self._end(link)
        except Exception:  # such as no descriptor left; the other links go on
            log.exception("a link of the bus failed, and nothing else with it")
            self._end(link)

    def _shaken(self, link: Link) -> bool:
        if link.tls is None:
            link.connected()
            self._forget(link)
            link.begin(self._keys.client, server=False)
        return link.shake()

    def _prove(self, link: Link) -> None:
        """Let a link pass bytes if its peer has proven a key that is pinned, and the one that we have called."""
        assert link.tls is not None, "the handshake is over"
        shown = link.tls.getpeercert(binary_form=True)
        peer, link.home = self._keys.peer_of(shown), home_of(shown)
        if peer is None or link.wanted not in (None, peer) or not self._shut_out.admits(peer):
            raise Over
        if not self._doorman.admits(peer, link.home):
            raise Over
        for other in list(self._open.get(peer, [])):
            if other.home != link.home and not self._doorman.admits(peer, other.home):
                self._end(other)  # a copy of the home that has come now
        local = link.local
        if local is None:
            local = socket.socket(socket.AF_UNIX)
            link.local = local
            local.setblocking(False)
            try:
                local.connect(str(self._inbound(peer)))
            except OSError:  # Zenoh is not there yet, or has no room
                raise Over from None
        del self._pending[link]
        link.opened(peer, local, self._held, self._shut_out.declared.setdefault(peer, DeclaredByPeer()))
        links = self._open.setdefault(peer, [])
        links.append(link)
        self._doorman.opened(peer, link.home)
        if len(links) > MAX_LINKS_OF_PEER:
            self._end(links[0])
        if link.move({}):
            self._busy.append(link)

    def _watch(self, link: Link) -> None:
        """Wait for what a link waits for."""
        for one in (link.raw, link.local):
            if one is None or one.fileno() < 0:
                continue
            wanted = link.waits.get(one, 0)
            registered = self._selector.get_map().get(one)
            if registered is None:
                if wanted:
                    self._selector.register(one, wanted, link)
            elif not wanted:
                self._selector.unregister(one)
            elif registered.events != wanted:
                self._selector.modify(one, wanted, link)

    def _forget(self, link: Link) -> None:
        for one in (link.raw, link.local):
            if one is not None and one.fileno() >= 0 and one in self._selector.get_map():
                self._selector.unregister(one)

    def _end(self, link: Link) -> None:
        self._forget(link)
        self._pending.pop(link, None)
        if link.peer is not None and link in (links := self._open.get(link.peer, [])):
            links.remove(link)
            self._doorman.ended(link.peer, link.home)
            if not links:
                del self._open[link.peer]
        link.close()

    def _offended(self, link: Link, why: str) -> None:
        """Cut all links of a peer, and let it have none for a while."""
        assert link.peer is not None, "nothing is read of a link before that"
        offence = self._shut_out.note(link.peer, why)
        log.warning("a peer says on the bus what no daemon says", why=why, shut_out_seconds=offence.seconds)
        for one in list(self._open.get(link.peer, [])):
            self._end(one)

    def _cut_strangers(self) -> None:
        self._shut_out.keep(self._keys.trusted)
        for peer in self._open.keys() - self._keys.trusted:
            for link in list(self._open[peer]):
                self._end(link)
        for link in list(self._pending):  # their handshakes may stand on keys that are gone
            if link.tls is not None:
                self._end(link)

    def _path(self, key: bytes) -> Path:
        return self._sockets / name_of(key)

    def _add_caller(self, key: bytes) -> None:
        self._callers[key] = made = listening_at(self._path(key))
        self._selector.register(made, READ, key)

    def _drop_caller(self, key: bytes) -> None:
        made = self._callers.pop(key)
        if self._resting.pop(made, None) is None:
            self._selector.unregister(made)
        made.close()
        for link in [one for one in self._open.get(key, []) if one.wanted is not None]:
            self._end(link)
        with suppress(OSError):  # what lies there keeps no other peer from being dropped
            self._path(key).unlink()
