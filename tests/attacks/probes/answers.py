"""Answers of peers and readers of what is published: junk, silence, and links from which nothing is read."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, cast

import anyio

from attacks.kit.within import within
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe
from sublet.messaging.links.link import MAX_HELD_BYTES_OF_LINK, Held, HoldingWay, Over
from sublet.messaging.links.sockets import private_directory, remove_directory
from sublet.messaging.ports.network import ANYBODY, Heard, Network
from sublet.messaging.syncing import asking
from sublet.messaging.syncing.asking import Asking
from sublet.messaging.syncing.shares import Failure, Shares
from sublet.protocol.ezagent.errors import malformed
from support.members import SECONDS, member, room_of
from support.memory_network import MemoryHub

MEBIBYTE: Final = 1 << 20


class _Answering:
    """Peers that answer each question in some way."""

    def __init__(self, peers: Collection[str], answer: Callable[[Heard], None]) -> None:
        self._peers = peers
        self._answer = answer

    def linked(self) -> Collection[str]:
        """Return all of them."""
        return self._peers

    def ask(self, peer: str, key: str, payload: bytes, timeout_seconds: float, heard: Heard) -> Callable[[], None]:
        """Answer at once, or never."""
        self._answer(heard)
        return lambda: None


def _refused(raw: bytes) -> bytes:
    raise malformed("says nothing")


@asynccontextmanager
async def _asked(peers: Collection[str], answer: Callable[[Heard], None], times: int) -> AsyncIterator[Asking]:
    """Ask these peers so many times, while none of the answers can be opened."""
    asker = Asking(cast("Network", _Answering(peers, answer)), lambda: None)
    async with anyio.create_task_group() as group:
        asker.begin(group)
        with anyio.fail_after(SECONDS):
            for _ in range(times):
                assert await asker.ask("ezagent/nowhere", b"?", None, _refused) == []
        yield asker
        group.cancel_scope.cancel()


def _much(heard: Heard) -> None:
    """Answer with more than is kept."""
    for number in range(64):
        heard(bytes([number]) * MEBIBYTE, f"{number % 3}")
    heard(None)


@asynccontextmanager
async def _junk(_: Path) -> AsyncIterator[object]:
    async with _asked([ANYBODY, *(f"peer {number}" for number in range(16))], _much, 4) as asker:
        yield asker


@asynccontextmanager
async def _silence(_: Path) -> AsyncIterator[object]:
    """Ask more of silent peers than they have places."""
    before = asking.ANSWER_SECONDS, asking.ANYBODY_SECONDS
    asking.ANSWER_SECONDS = asking.ANYBODY_SECONDS = 0.01  # type: ignore[misc]
    try:
        async with _asked([f"peer {number}" for number in range(64)], lambda _: None, 4) as asker:
            assert len(asker.asked_last()) == 64
            yield asker
    finally:
        asking.ANSWER_SECONDS, asking.ANYBODY_SECONDS = before  # type: ignore[misc]


def _shares(number: int) -> Shares:
    """Have peers fail and answer."""
    shares = Shares(lambda: float(number))
    for one in range(number):
        shares.failed(f"peer {one}", Failure.JUNK, 100)
        shares.answered(f"peer {one}", 0.1)
    return shares


@contextmanager
def _unread() -> Iterator[object]:
    """Say more to a reader that takes nothing than is held for it."""
    held = Held()
    with contextlib.ExitStack() as stack:
        writer, source = map(stack.enter_context, socket.socketpair())
        sink, _ = map(stack.enter_context, socket.socketpair())
        for one in (writer, source, sink):
            one.setblocking(False)
        way = HoldingWay(source, sink, held, lambda: 0.0)
        while held.size < MAX_HELD_BYTES_OF_LINK:
            with contextlib.suppress(BlockingIOError):
                writer.send(bytes(1 << 16))
            way.move()
        yield held
        way.close()


def _pieces(number: int) -> int:
    return number


def _moved(size: int) -> None:
    """Move so many bytes to a reader that takes them late."""
    with contextlib.ExitStack() as stack:
        writer, source = map(stack.enter_context, socket.socketpair())
        sink, reader = map(stack.enter_context, socket.socketpair())
        for one in (writer, source, sink, reader):
            one.setblocking(False)
        way, left, got = HoldingWay(source, sink, Held(), lambda: 0.0), size, 0
        while left:
            with contextlib.suppress(BlockingIOError):
                left -= writer.send(bytes(min(left, 1 << 14)))
            with contextlib.suppress(Over):
                way.move()
        while got < size:
            with contextlib.suppress(BlockingIOError):
                got += len(reader.recv(1 << 14))
            way.move()


async def _an_answer_that_breaks() -> None:
    """Have the network fail under a question; whoever asks gets what others say, and later questions are put."""

    def broken(_: Heard) -> None:
        raise RuntimeError("thrown by a probe")

    async with _asked(["peer"], broken, 3) as asker:
        assert asker.asked_last() == {}


async def _a_member_whose_answers_break() -> None:
    """Have a whole member's questions fail; what is published comes all the same, and catching up goes on after it."""
    hub = MemoryHub()
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="answers")))
        async with member("alice", 1, hub, place) as alice, member("bob", 2, hub, place) as bob:
            room = await room_of(alice, bob)
            plain = bob.network.query

            def broken(key: str, payload: bytes, timeout_seconds: float) -> list[bytes]:
                bob.network.query = plain  # type: ignore[method-assign]
                return [b"\xff" * 300]

            bob.network.query = broken  # type: ignore[method-assign, assignment]
            await alice.bus.message.send(room_id=room, body="hello")
            await bob.until(room, lambda bodies: bodies == ["hello"])


async def _no_place_for_sockets() -> None:
    """Ask for sockets where a directory can't be emptied, and where paths are too long."""
    with tempfile.TemporaryDirectory(prefix="sockets") as base:
        place = Path(base, "s")
        (place / "sub").mkdir(parents=True)
        with contextlib.suppress(OSError):
            private_directory(place)
        made = private_directory(Path(base, "x" * 200))
        remove_directory(made)
        assert not made.exists()


PROBES: Sequence[Probe] = (
    KeptProbe(
        name="answers: junk without end",
        covers=(
            "messaging.syncing.asking:Asking.__init__",
            "messaging.syncing.asking:Asking._put",
            "messaging.syncing.asking:_Unopened.next",
            "messaging.syncing.shares:Shares.__init__",
        ),
        attack=lambda: within(_junk),
        bound=40 * MEBIBYTE,
    ),
    KeptProbe(
        name="answers: none, ever",
        covers=("messaging.syncing.asking:Asking.__init__", "messaging.syncing.asking:Asking.ask"),
        attack=lambda: within(_silence),
        bound=2 * MEBIBYTE,
    ),
    KeptProbe(
        name="bus: a reader that takes nothing",
        covers=("messaging.links.link:HoldingWay.move", "messaging.links.link:HoldingWay._empty"),
        attack=_unread,
        bound=MAX_HELD_BYTES_OF_LINK + MEBIBYTE,
    ),
    CostProbe(
        name="bus: what a reader takes late",
        covers=["messaging.links.link:HoldingWay.move", "messaging.links.link:HoldingWay._empty"],
        make=_pieces,
        run=_moved,
        size=1 << 20,
        most=4 << 20,
    ),
    CostProbe(
        name="answers: peers that fail and answer",
        covers=["messaging.syncing.shares:Shares.failed", "messaging.syncing.shares:Shares.answered"],
        make=_pieces,
        run=_shares,
        size=1_024,
        most=3_000,
    ),
    FailureProbe(
        name="answers: a question at which the network breaks",
        covers=[
            "messaging.syncing.asking:Asking._of_first",
            "messaging.syncing.asking:Asking.ask",
            "messaging.syncing.asking:_Question.answered",
        ],
        throw=_an_answer_that_breaks,
    ),
    FailureProbe(
        name="answers: a member that answers with junk once",
        covers=["messaging.syncing.sync:Sync.run", "messaging.syncing.asking:Asking._put"],
        throw=_a_member_whose_answers_break,
    ),
    FailureProbe(
        name="bus: no place for its sockets",
        covers=[
            "messaging.links.sockets:private_directory",
            "messaging.links.sockets:remove_directory",
        ],
        throw=_no_place_for_sockets,
    ),
)
