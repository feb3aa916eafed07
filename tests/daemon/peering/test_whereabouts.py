"""Where paired daemons are: told after a start until it is heard, and believed from nobody but themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import pytest

from sublet.daemon.peering import whereabouts
from sublet.daemon.peering.identity import Identity
from sublet.daemon.peering.pairing import OwnAddress
from sublet.daemon.peering.peers import Peer
from sublet.daemon.peering.whereabouts import Whereabouts
from sublet.daemon.ports.given_to_a2a import Moved
from sublet.daemon.ports.peer_link import PeerAddress
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.signing import MAX_CLOCK_SKEW_SECONDS
from support.a2a_world import MemoryNonces
from support.pairing import DirectLink, Side, side

pytestmark = pytest.mark.anyio

SECONDS = 30
NOW = 1_800_000_000
ANN, BOB = "https://10.0.0.1:8642/", "https://10.0.0.2:8642/"


@dataclass
class Wire(DirectLink):
    """Carries what one tells to the other, unless it is cut."""

    told: list[Moved] = field(default_factory=list)
    failing: int = 0
    hand_over: Callable[[Moved], object] = lambda moved: None

    async def tell_moved(self, peer: PeerAddress, moved: Moved) -> None:
        if self.failing:
            self.failing -= 1
            raise SubletError(LocalCode.PEER_UNREACHABLE, "nobody answers", "")
        self.told.append(moved)


@dataclass
class Scene:
    """Bob hears Ann, who is at ``address`` now and whose messages go over ``wire``."""

    bob: Side
    hears: Whereabouts
    ann: Identity
    tells: Whereabouts
    wire: Wire
    address: OwnAddress = field(default_factory=lambda: OwnAddress("https://10.0.0.1:9999/", None))
    now: float = NOW
    steady: float = 0.0

    async def told(self) -> Moved:
        """Return what Ann tells Bob now."""
        peer = Peer("bob", self.bob.identity.public_key, BOB, None)
        assert await self.tells._tell(peer)
        return self.wire.told[-1]

    async def hear(self, moved: Moved, source_host: str = "10.0.0.1") -> str | None:
        """Let Bob hear it; return where Ann is then."""
        ann = self.bob.peers.get("ann")
        assert ann is not None
        await self.hears.moved(ann.known(), source_host, moved)
        return self.where()

    def where(self) -> str | None:
        ann = self.bob.peers.get("ann")
        assert ann is not None
        return ann.a2a_url

    async def refused(self, moved: Moved, code: ErrorCode | LocalCode, source_host: str = "10.0.0.1") -> None:
        before = self.where()
        with pytest.raises(SubletError) as refusal:
            await self.hear(moved, source_host)
        assert refusal.value.code is code
        assert self.where() == before


@asynccontextmanager
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with side(tmp_path / "ann", 1) as ann, side(tmp_path / "bob", 2) as bob:
        await bob.peers.add(Peer("ann", ann.identity.public_key, ANN, None))
        await ann.peers.add(Peer("bob", bob.identity.public_key, BOB, None))
        wire, nonces = Wire(), MemoryNonces()
        hears = Whereabouts(
            *(bob.identity, bob.peers, wire, lambda: bob.address, nonces),
            clock=lambda: made.now,
            steady=lambda: made.steady,
        )
        tells = Whereabouts(ann.identity, ann.peers, wire, lambda: made.address, MemoryNonces(), lambda: made.now)
        made = Scene(bob, hears, ann.identity, tells, wire)
        yield made


async def test_a_peer_is_called_where_it_says_and_that_outlasts_a_restart(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        seen: list[str | None] = []
        it.bob.peers.listeners.append(lambda: seen.append(it.where()))
        assert await it.hear(await it.told()) == "https://10.0.0.1:9999/"
        assert seen == ["https://10.0.0.1:9999/"], "who calls it is told at once"
        assert [peer.a2a_url for peer in (await type(it.bob.peers).load(it.bob.journal)).list()] == seen
        # From another address on another network, and through a peer that could not be called before.
        it.address = OwnAddress("https://192.0.2.7:8642/", None)
        assert await it.hear(await it.told(), "192.0.2.7") == "https://192.0.2.7:8642/"
        assert len(seen) == 2
        assert await it.hear(await it.told(), "192.0.2.7") == "https://192.0.2.7:8642/"
        assert len(seen) == 2, "nothing has changed"


async def test_only_what_the_pinned_key_signs_for_us_and_now_counts_and_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        moved = await it.told()
        for forged in (
            replace(moved, a2a_url="https://10.0.0.1:6666/"),
            replace(moved, tls_certificate="another"),
            replace(moved, at=moved.at + 1),
            replace(moved, nonce="another"),
            replace(moved, signature=moved.signature[::-1]),
            replace(moved, signature=""),
            replace(moved, nonce="x" * 5_000),
        ):
            await it.refused(forged, ErrorCode.AUTH_FAILED)
        somebody = Peer("carl", it.ann.public_key, BOB, None)
        assert await it.tells._tell(somebody)
        await it.refused(it.wire.told[-1], ErrorCode.AUTH_FAILED)
        for away in (-1, 1):
            it.now = NOW + away * (MAX_CLOCK_SKEW_SECONDS + 1)
            other = await it.told()
            it.now = NOW
            await it.refused(other, ErrorCode.AUTH_FAILED)
        assert await it.hear(moved) == "https://10.0.0.1:9999/"
        await it.refused(moved, ErrorCode.AUTH_FAILED)


async def test_what_was_said_before_does_not_undo_what_was_said_later(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        early = await it.told()
        it.now, it.address = NOW + 1, OwnAddress("https://10.0.0.1:7777/", None)
        await it.hear(await it.told())
        await it.refused(early, ErrorCode.AUTH_FAILED)


@pytest.mark.parametrize(
    ("url", "source_host"),
    [
        ("https://10.0.0.9:8642/", "10.0.0.1"),
        ("http://127.0.0.1:8642/", "10.0.0.1"),
        ("https://127.0.0.1:8642/", "10.0.0.1"),
        ("https://169.254.169.254/", "10.0.0.1"),
        ("http://10.0.0.1:8642/", "10.0.0.1"),
        ("file:///etc/passwd", "10.0.0.1"),
        ("https://localhost/", "10.0.0.1"),
    ],
)
async def test_a_peer_sends_us_to_no_other_host(tmp_path: Path, url: str, source_host: str) -> None:
    async with scene(tmp_path) as it:
        it.address = OwnAddress(url, None)
        await it.refused(await it.told(), LocalCode.INVALID_ARGUMENT, source_host)


async def test_a_malformed_certificate_is_not_kept(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.address = OwnAddress("https://10.0.0.1:9999/", "no certificate")
        await it.refused(await it.told(), LocalCode.INVALID_ARGUMENT)


async def test_who_was_removed_is_not_called_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        moved, ann = await it.told(), it.bob.peers.require("ann")
        await it.bob.peers.remove("ann")
        with pytest.raises(SubletError):
            await it.hears.moved(ann.known(), "10.0.0.1", moved)
        assert it.bob.peers.list() == []


async def test_it_is_told_until_it_is_heard_and_then_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whereabouts, "FIRST_WAIT_SECONDS", 0.001)
    async with scene(tmp_path) as it:
        it.wire.failing = 3
        async with anyio.create_task_group() as group:
            group.start_soon(it.tells.serve)
            with anyio.fail_after(SECONDS):
                while not it.wire.told:
                    await anyio.sleep(0.001)
            # A newcomer is told too, and Bob not again.
            (bob,) = it.tells._peers.list()
            await it.tells._peers.add(Peer("carl", bytes(32), "https://10.0.0.3:8642/", None))
            with anyio.fail_after(SECONDS):
                while len(it.wire.told) < 2:
                    await anyio.sleep(0.001)
            await it.tells._peers.move(replace(bob, a2a_url="https://10.0.0.2:1/"))
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        assert it.wire.failing == 0
        assert len(it.wire.told) == 2


async def test_an_address_on_loopback_is_told_on_this_machine_alone(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.address = OwnAddress("http://127.0.0.1:9/", None)
        here = Peer("here", it.bob.identity.public_key, "http://127.0.0.1:10/", None)
        there = Peer("there", it.bob.identity.public_key, BOB, None)
        nowhere = Peer("nowhere", it.bob.identity.public_key, None, None)
        assert [it.tells._can_tell(peer) for peer in (here, there, nowhere)] == [True, False, False]
        ann = it.bob.peers.require("ann")
        await it.bob.peers.move(replace(ann, a2a_url="http://127.0.0.1:8/"))
        assert await it.hear(await it.told(), "127.0.0.1") == "http://127.0.0.1:9/"


async def test_a_peer_that_moves_to_and_fro_writes_one_event_a_minute(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:

        async def move_about(times: int) -> list[int]:
            for port in range(times):
                it.address = OwnAddress(f"https://10.0.0.1:{9_000 + port}/", None)
                assert await it.hear(await it.told()) == f"https://10.0.0.1:{9_000 + port}/"
            events = (await it.bob.journal.events.events_after(0)).events
            return [int(str(event.data.get("moves", 1))) for event in events if event.kind == "peer_moved"]

        assert await move_about(50) == [1]
        it.steady = whereabouts.EVENT_SECONDS
        assert await move_about(50) == [1, 50]
        assert (await type(it.bob.peers).load(it.bob.journal)).require("ann").a2a_url == "https://10.0.0.1:9049/"
