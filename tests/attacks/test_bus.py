"""Whoever reaches the port of a bus without being paired: another user of the machine, a stranger, somebody removed."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from attacks.kit.neighbour import (
    HOST,
    Authority,
    bus_port,
    impostor,
    neighbour,
    public,
    shake,
    zenoh_links,
    zenoh_tls,
)
from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork
from sublet.messaging.links import links as links_module
from sublet.messaging.links.keys import LinkKeys, key_id, make_leaf
from sublet.messaging.links.link import Link
from sublet.messaging.links.links import MAX_LINKS_OF_PEER, MAX_PENDING, Links
from sublet.messaging.ports.network import PeerQuery, Priority, Qos, Sample
from sublet.protocol import ids
from support.daemon_rooms import WAIT_SECONDS, bodies, shared_room
from support.daemons import Daemon, two_daemons, wait_for
from support.namespaces import needs_root
from support.typed_commands import Typing

ANN, BOB, EVE = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2, 3))
DATA = Qos(Priority.DATA, droppable=False)
KEY = "ezagent/anything"
LATE_SECONDS = 0.3


class Bus:
    """Links of a daemon with Zenoh behind them, in this process."""

    def __init__(self, place: Path, key: Ed25519PrivateKey, peers: list[Ed25519PrivateKey]) -> None:
        self.key = key
        self.keys = LinkKeys(place / "keys", key)
        with socket.create_server((HOST, 0)) as listener:
            self.port = int(listener.getsockname()[1])
            self.links = Links(self.keys, place / "s", listener)
        self._peers = [public(one) for one in peers]
        self.links.trust(self._peers)
        self.network = ZenohNetwork(Endpoints())
        self._join({})
        self.heard: list[bytes] = []
        self.network.subscribe(KEY, self._hear)

    def _hear(self, sample: Sample) -> None:
        self.heard.append(sample.payload)

    def call(self, key: Ed25519PrivateKey, port: int) -> None:
        """Call another daemon."""
        self._join(self.links.call({public(key): [(HOST, port)]}))

    def _join(self, called: Mapping[bytes, str]) -> None:
        self.network.join(
            {
                ids.node_id(key): Endpoints((self.links.inbound(key),), (called[key],) if key in called else ())
                for key in self._peers
            }
        )

    def close(self) -> None:
        self.network.close()
        self.links.close()


class FullListener:
    """A listener for which no descriptor is left, the first times that it is asked."""

    def __init__(self, real: socket.socket, refusals: int) -> None:
        self.real = real
        self.refusals = refusals

    def accept(self) -> tuple[socket.socket, object]:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, "thrown by a test")
        return self.real.accept()


@contextmanager
def buses(place: Path, *who: tuple[Ed25519PrivateKey, list[Ed25519PrivateKey]]) -> Iterator[list[Bus]]:
    with ExitStack() as stack:
        made = []
        for number, (key, peers) in enumerate(who):
            made.append(Bus(place / str(number), key, peers))
            stack.callback(made[-1].close)
        yield made


def joined(one: Bus, other: Bus) -> None:
    """Wait until two hear each other."""
    wait_for(lambda: one.network.peers() and other.network.peers(), what="a link")

    def heard() -> bool:
        one.network.publish(KEY, b"hello", b"", DATA)
        return b"hello" in other.heard

    wait_for(heard, what="what was said")


def leaf_of(key: Ed25519PrivateKey, place: Path) -> Path:
    place.write_bytes(make_leaf(key))
    return place


def strangers(place: Path, called: Ed25519PrivateKey, paired: Ed25519PrivateKey) -> dict[str, Path | None]:
    """Return what strangers show: nothing, what their own key or authority vouches for, what says it is of others."""
    return {
        "nothing": None,
        "own key": leaf_of(EVE, place / "eve.pem"),
        "own authority": Authority(place / "own").leaf(),
        "as the daemon": Authority(place / "as the daemon", public(called)).leaf(),
        "as a paired one": Authority(place / "as a paired one", public(paired)).leaf(),
    }


def test_paired_daemons_hear_each_other(tmp_path: Path) -> None:
    with buses(tmp_path, (ANN, [BOB]), (BOB, [ANN])) as (ann, bob):
        bob.call(ANN, ann.port)
        joined(ann, bob)
        assert (ann.links.peers(), bob.links.peers()) == ([public(BOB)], [public(ANN)])


def test_a_stranger_hears_nothing_and_says_nothing(tmp_path: Path) -> None:
    with buses(tmp_path, (ANN, [BOB])) as (ann,):
        for what, shown in strangers(tmp_path, ANN, BOB).items():
            got = shake(ann.port, shown, b"\x05\0hello")
            assert (got.told, bool(got.refused)) == (b"", True), what
            if shown is not None:
                more = zenoh_tls(shown, tmp_path / "own/leaf.pem")
                assert zenoh_links(f"tls/{HOST}:{ann.port}", more) == 0, what
        assert zenoh_links(f"tcp/{HOST}:{ann.port}", {}) == 0
        assert ann.links.peers() == []
        assert ann.network.peers() == 0


def test_a_handshake_names_no_paired_node(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def note(_: object, direction: str, version: object, kind: object, message: object, data: bytes) -> None:
        if direction == "read":
            seen.append(data)

    with buses(tmp_path, (ANN, [BOB, EVE])) as (ann,):
        context: Any = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context._msg_callback = note
        with (
            socket.create_connection((HOST, ann.port)) as raw,
            context.wrap_socket(raw) as tls,
            pytest.raises(ssl.SSLError),
        ):
            tls.recv(1)
    told = b"".join(seen)
    assert key_id(public(ANN)) in told, "the handshake was read"
    for peer in (BOB, EVE):
        assert public(peer) not in told
        assert key_id(public(peer)) not in told
        assert ids.node_id(public(peer)).encode() not in told
    requests = [one for one in seen if one[:1] == b"\x0d"]
    assert len(requests) == 1
    assert b"\0\x2f" not in requests[0], "a list of authorities"
    assert ids.node_id(public(ANN)).encode() not in told, "nor whose it is, but for who knows the key"


def with_root(bus: Bus, root: bytes, peers: list[Ed25519PrivateKey], monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an authority of somebody else among those that OpenSSL believes, in a process."""
    plain = LinkKeys._context

    def more(self: LinkKeys, side: int, authorities: str) -> ssl.SSLContext:
        return plain(self, side, authorities + root.decode())

    monkeypatch.setattr(LinkKeys, "_context", more)
    bus.links.trust([public(EVE)])  # contexts are made anew for other keys alone
    bus.links.trust([public(one) for one in peers])


@pytest.mark.parametrize("named_for", [EVE, BOB], ids=["an unknown key", "a paired key"])
def test_an_authority_among_the_roots_opens_nothing(
    tmp_path: Path, named_for: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = Authority(tmp_path / "web", public(named_for))
    leaf = web.leaf()
    peers = [] if named_for is BOB else [BOB]  # of two authorities with one id OpenSSL may take the true one
    with buses(tmp_path, (ANN, [BOB])) as (ann,):
        with_root(ann, web.root, peers, monkeypatch)
        ann.keys.trusted = frozenset([public(BOB)])
        got = shake(ann.port, leaf, b"\x05\0hello")
        assert got.told == b""
        assert ann.links.peers() == []
        heard: list[bytes] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(leaf)
        with impostor(context, heard.append) as port:
            ann.call(BOB, port)
            wait_for(lambda: len(heard) >= 2, what="handshakes that OpenSSL believes")
        assert set(heard) == {b""}, "what the daemon says to who has its peer's port"
        assert ann.network.peers() == 0


def test_who_has_the_port_of_a_peer_is_told_nothing(tmp_path: Path) -> None:
    heard: list[bytes] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(leaf_of(EVE, tmp_path / "eve.pem"))
    with buses(tmp_path, (ANN, [BOB, EVE]), (BOB, [ANN])) as (ann, bob):
        with impostor(context, heard.append) as port:
            ann.call(BOB, port)  # by one who is paired as well
            wait_for(lambda: len(heard) >= 2, what="handshakes")
            assert set(heard) == {b""}
        assert ann.links.peers() == []
        ann.call(BOB, bob.port)
        joined(ann, bob)


def test_who_is_removed_is_cut_and_the_others_go_on(tmp_path: Path) -> None:
    with buses(tmp_path, (ANN, [BOB, EVE]), (BOB, [ANN]), (EVE, [ANN])) as (ann, bob, eve):
        for one in (bob, eve):
            one.call(ANN, ann.port)
        joined(ann, bob)
        joined(ann, eve)
        kept = list(ann.links._open[public(BOB)])
        ann.links.trust([public(BOB)])
        assert ann.links.peers() == [public(BOB)]
        wait_for(lambda: eve.network.peers() == 0, what="the end of her link")
        eve.heard.clear()
        joined(ann, bob)
        assert ann.links._open[public(BOB)] == kept
        assert eve.heard == []
        got = shake(ann.port, leaf_of(EVE, tmp_path / "eve.pem"), b"\x05\0hello")
        assert (got.told, bool(got.refused)) == (b"", True)


def test_who_answers_too_late_keeps_its_link(tmp_path: Path) -> None:
    with buses(tmp_path, (ANN, [BOB]), (BOB, [ANN])) as (ann, bob):
        bob.call(ANN, ann.port)
        joined(ann, bob)
        held: list[PeerQuery] = []
        bob.network.serve(KEY, held.append)
        kept = list(ann.links._open[public(BOB)])
        wait_for(lambda: ann.network.linked(), what="a link")
        for asked in (1, 2):  # what Zenoh says of the first one has come before the second one ends
            over = threading.Event()
            ann.network.ask(ids.node_id(public(BOB)), KEY, b"?", LATE_SECONDS, lambda *_, told=over: told.set())
            assert over.wait(WAIT_SECONDS)
            assert len(held) == asked, "it was asked, and has not answered"
        assert ann.links.shut_out() == {}
        assert ann.links._open[public(BOB)] == kept


def test_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    with buses(tmp_path, (ANN, [BOB]), (BOB, [ANN])) as (ann, bob), ExitStack() as stack:
        for _ in range(MAX_PENDING + 30):
            stack.enter_context(socket.create_connection((HOST, ann.port)))
        bob.call(ANN, ann.port)
        joined(ann, bob)
        assert len(ann.links._pending) <= MAX_PENDING


@pytest.mark.parametrize("failure", ["no descriptor", "broken"])
def test_a_link_that_fails_takes_no_other_along(tmp_path: Path, failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "PENDING_SECONDS", 1_000.0)
    with buses(tmp_path, (ANN, [BOB]), (BOB, [ANN])) as (ann, bob):
        bob.call(ANN, ann.port)
        joined(ann, bob)
        plain, thrown = ann.links._shaken, threading.Event()

        def fail(link: Link) -> bool:
            ann.links._shaken = plain  # type: ignore[method-assign]
            thrown.set()
            raise OSError(errno.EMFILE, "thrown by a test") if failure == "no descriptor" else KeyError("by a test")

        ann.links._shaken = fail  # type: ignore[method-assign]
        with socket.create_connection((HOST, ann.port), WAIT_SECONDS) as one:
            one.sendall(b"x")
            assert thrown.wait(WAIT_SECONDS)
            with suppress(ConnectionResetError):
                assert one.recv(1) == b""
        joined(ann, bob)


def test_a_listener_that_can_accept_nothing_rests_and_serves_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with buses(tmp_path, (ANN, [BOB]), (BOB, [ANN])) as (ann, bob):
        listener = ann.links._listener
        assert listener is not None
        full: Any = FullListener(listener, 3)
        accept, rest = ann.links._accept, ann.links._rest
        rested: list[bool] = []

        def resting(_: socket.socket, data: bytes | None, error: OSError) -> None:
            rest(listener, data, error)
            rested.append(listener not in ann.links._selector.get_map())

        monkeypatch.setattr(ann.links, "_rest", resting)
        monkeypatch.setattr(ann.links, "_accept", lambda _: accept(full))
        bob.call(ANN, ann.port)
        joined(ann, bob)
        # It is asked again after each pause, and not all the time in between.
        assert rested[:3] == [True] * 3
        assert not any(rested[3:])


def test_a_peer_has_a_few_links_at_most(tmp_path: Path) -> None:
    with buses(tmp_path, (ANN, [BOB])) as (ann,), ExitStack() as stack:
        context = LinkKeys(tmp_path / "bob", BOB)
        context.trust([public(ANN)])
        for _ in range(MAX_LINKS_OF_PEER + 3):
            raw = stack.enter_context(socket.create_connection((HOST, ann.port)))
            stack.enter_context(context.client.wrap_socket(raw))
        wait_for(lambda: len(ann.links.peers()) == MAX_LINKS_OF_PEER, what="as many links as a peer may have")


def test_zenoh_is_reached_by_its_own_user_alone(tmp_path: Path) -> None:
    with buses(tmp_path, (ANN, [BOB])) as (ann,):
        endpoint = ann.links.inbound(public(BOB))
        assert Path(endpoint.partition("/")[2]).parent.stat().st_mode & 0o777 == 0o700
        assert zenoh_links(endpoint, {}) == 1, "the daemon's own user"


# Daemons as they are.

OTHER_USER = """
import os, sys, socket, ssl
sys.path[:0] = sys.argv[4].split(os.pathsep)
import encodings.idna
from attacks.kit.neighbour import shake, zenoh_links, zenoh_tls
from pathlib import Path
os.setgroups([]); os.setgid(65534); os.setuid(65534)
port, leaf, run = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
got = shake(port, leaf, b"hello")
assert got.told == b"" and got.refused, got
assert shake(port, None, b"hello").told == b""
assert zenoh_links(f"tcp/127.0.0.1:{port}", {}) == 0
assert zenoh_links(f"tls/127.0.0.1:{port}", zenoh_tls(leaf, leaf)) == 0
try:
    os.listdir(run)
except PermissionError:
    pass
else:
    raise AssertionError("the directory of the sockets is open")
for name in ("in", "0" * 10):
    assert zenoh_links(f"unixsock-stream/{run}/{name}", {}) == 0
print("nothing")
"""


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path_factory.mktemp("bus")) as both:
        yield both


@needs_root
@pytest.mark.timeout(240)
def test_another_user_of_the_machine_reads_nothing(daemons: tuple[Daemon, Daemon], tmp_path: Path) -> None:
    alice, bob = daemons
    leaf = leaf_of(EVE, tmp_path / "eve.pem")
    for one in (tmp_path, *tmp_path.parents):
        if one.is_relative_to(Path(os.environ.get("TMPDIR", "/tmp"))):
            one.chmod(one.stat().st_mode | 0o011)
    leaf.chmod(0o644)
    for daemon in (alice, bob):
        run = Path(daemon.home, "run", "bus")
        wait_for(run.exists, WAIT_SECONDS, "the bus")
        paths = os.pathsep.join(sys.path)
        done = subprocess.run(
            [sys.executable, "-c", OTHER_USER, str(bus_port(daemon.home)), str(leaf), str(run), paths],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stdout.strip() == "nothing", done.stderr


@pytest.mark.timeout(240)
def test_a_removed_peer_hears_nothing_more(daemons: tuple[Daemon, Daemon]) -> None:
    alice, bob = (Typing(one) for one in daemons)
    room = shared_room(alice, bob, "--encryption", "transport_only")
    alice.run("send", room, "hello")
    wait_for(lambda: bodies(bob, room) == ["hello"], WAIT_SECONDS, "the message")
    evil = neighbour(daemons[0], daemons[1])
    try:
        heard: list[bytes] = []
        evil.subscribe("ezagent/**", lambda sample: heard.append(sample.payload + sample.attachment))
        wait_for(lambda: evil.peers() == 1, what="her link")

        def told() -> bool:
            alice.run("send", room, "for who is paired")
            return any(b"for who is paired" in one for one in heard)

        wait_for(told, WAIT_SECONDS, "what every paired daemon may read")
        alice.run("peers", "remove", "bob")
        wait_for(lambda: evil.peers() == 0, WAIT_SECONDS, "the end of the link")
        heard.clear()
        alice.run("send", room, "for nobody else")
        assert shake(bus_port(daemons[0].home), None, b"x").told == b""
        assert (evil.peers(), heard) == (0, [])
    finally:
        evil.close()
