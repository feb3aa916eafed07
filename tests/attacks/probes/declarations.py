"""What a paired daemon declares over its link, what it says beside that, and what is kept of it."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import anyio

from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe
from sublet.messaging.attending import said_again
from sublet.messaging.attending.said_again import SaidAgain
from sublet.messaging.backends.local_keys import LocalKeys
from sublet.messaging.backends.tokens import Announced, Tokens
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.links.batches import BatchReader, Odd
from sublet.messaging.links.declared import MAX_ANNOUNCED, DeclaredByPeer, DeclaredOnLink
from sublet.messaging.links.link import Over, Way
from sublet.messaging.links.shut_out import ShutOut
from sublet.messaging.mending.agreed import Agreed
from sublet.messaging.ports.agreed import WasAgreed
from sublet.messaging.ports.invitation_store import Answer, Invitation
from support import zenoh_words as zenoh

MEBIBYTE: Final = 1 << 20
KEY: Final = b"ezagent/01a2212b-1000-7167-9394-011daa814786/root"


def _in_batches(messages: Sequence[bytes]) -> bytes:
    """Return a link's bytes: frames of a thousand messages."""
    frames = [zenoh.frame(*messages[at : at + 500]) for at in range(0, len(messages), 500)]
    return zenoh.handshake() + b"".join(map(zenoh.batch, frames))


def _samples(size: int) -> bytes:
    one = zenoh.push(KEY, b"x", b"y")
    return _in_batches([one] * (size // len(one)))


def _tokens(size: int) -> bytes:
    each = [zenoh.declare(0, number, KEY + b"/%d" % number) for number in range(size // 80)]
    return _in_batches(each)


def _questions(size: int) -> bytes:
    one = zenoh.request(KEY, b"?") + zenoh.response(KEY, b"!")
    return _in_batches([one] * (size // len(one)))


def _numbers(size: int) -> bytes:
    """Return numbers of variable length that go on for as long as they can."""
    one = b"\xbd" + b"\x80" * 8 + b"\x00"
    return _in_batches([one] * (size // len(one)))


def _read(said: bytes) -> None:
    link = DeclaredOnLink(DeclaredByPeer())
    reader = BatchReader(link.take)
    with contextlib.suppress(Odd):
        for at in range(0, len(said), 16 << 10):
            reader.feed(said[at : at + (16 << 10)])
    link.ended()


@contextmanager
def _way(said: bytes) -> Iterator[object]:
    """Let a peer's bytes go to Zenoh until the peer is refused, or all of it was said."""
    peer = DeclaredByPeer()
    with contextlib.ExitStack() as stack:
        writer, source = map(stack.enter_context, socket.socketpair())
        sink, reader = map(stack.enter_context, socket.socketpair())
        for one in (writer, source, sink, reader):
            one.setblocking(False)
        way = Way(source, sink, DeclaredOnLink(peer))
        with contextlib.suppress(Over):
            while said:
                with contextlib.suppress(BlockingIOError):
                    said = said[writer.send(said[: 1 << 14]) :]
                way.move()
                with contextlib.suppress(BlockingIOError):
                    reader.recv(1 << 20)
        yield peer
        way.close()
    assert peer.count == 0


@contextmanager
def _heard_tokens() -> Iterator[object]:
    tokens = Tokens()
    for number in range(4 * MAX_ANNOUNCED):
        tokens.took("eve", f"ezagent/room/{number}", there=True)
    yield tokens
    tokens.gone("eve")


def _keys(number: int) -> tuple[LocalKeys[int], str]:
    keys = LocalKeys[int]()
    for one in range(1_000):
        keys.add(f"ezagent/{one}/index/*/updates", one)
        keys.add(f"ezagent/{one}/**", one)
    return keys, "ezagent/7/index" + "/x" * (number // 2)


def _find(given: tuple[LocalKeys[int], str]) -> None:
    keys, key = given
    assert len(keys.of(key)) >= 1


def _announce(number: int) -> None:
    live: list[str] = []

    def declare(key: str) -> Callable[[], None]:
        live.append(key)
        return lambda: live.remove(key)

    announced = Announced(declare)
    ends = [announced.add(str(one)) for one in range(number)]
    assert len(live) == min(number, MAX_ANNOUNCED)
    for end in ends[:10]:
        end()


def _offences(number: int) -> None:
    out = ShutOut(lambda: 1.0)
    for one in range(number):
        out.note(b"%d" % (one % 64), "why")
        out.admits(b"%d" % one)
    out.keep({b"1"})
    assert len(out.told()) == 1


def _same(number: int) -> int:
    return number


async def _words_that_can_t_be_said() -> None:
    """Have the engine fail as words are said again: the next token has them said all the same."""
    said: list[int] = []

    class Breaks:
        def say_again(self, room_id: str) -> None:
            said.append(1)
            if len(said) == 1:
                raise RuntimeError("thrown by a probe")

    class Parts:
        ephemeral = Breaks()

    async def call(run: Any) -> Any:
        return run(Parts())

    before, said_again.PAUSE_SECONDS = said_again.PAUSE_SECONDS, 0.01  # type: ignore[misc]
    try:
        async with anyio.create_task_group() as group:

            async def guarded(run: Any) -> None:
                with contextlib.suppress(RuntimeError):
                    await run()

            def soon(run: Any) -> None:
                group.start_soon(guarded, run)

            again = SaidAgain(cast("CallEngine", call), soon)
            again.want(["room"])
            with anyio.fail_after(10):
                while again._is_at_it:
                    await anyio.sleep(0.01)
                again.want(["room"])
                while len(said) < 2:
                    await anyio.sleep(0.01)
            group.cancel_scope.cancel()
    finally:
        said_again.PAUSE_SECONDS = before  # type: ignore[misc]


async def _a_second_place_that_breaks() -> None:
    """Have the second place be a directory, a damaged file, and on no disk: nobody fails for it."""
    invitation = Invitation("room", "home", "@a:b", ("@c:d",), "name", (), 0, Answer.DECLINED, 1)
    with tempfile.TemporaryDirectory(prefix="agreed") as base:
        Path(base, "directory").mkdir()
        Path(base, "damaged").write_bytes(b"x" * 9_000)
        for name in ("directory", "damaged", "gone/file"):
            kept = Agreed(Path(base, name))
            kept.taken_up("room")
            kept.answered(invitation)
            kept.let_go("room")
            assert kept.begin(["room"], [], 0) == WasAgreed()


def _agree(number: int) -> None:
    with tempfile.TemporaryDirectory(prefix="agreed") as base:
        kept = Agreed(Path(base, "x"), lambda: 1)
        kept.begin([f"{one}" for one in range(number)], [], 1)
        kept.begin([], [], 1)


_READING = [
    "messaging.links.batches:BatchReader.feed",
    "messaging.links.batches:BatchReader._batch",
    "messaging.links.batches:BatchReader._frame",
    "messaging.links.batches:_number",
]

PROBES: Sequence[Probe] = (
    CostProbe(
        name="bus: many samples in a frame",
        covers=[*_READING, "messaging.links.batches:_extensions"],
        make=_samples,
        run=_read,
        size=64 << 10,
    ),
    CostProbe(
        name="bus: keys that are declared",
        covers=_READING,
        make=_tokens,
        run=_read,
        size=64 << 10,
        most=256 << 10,
    ),
    CostProbe(
        name="bus: questions and answers in a frame",
        covers=[*_READING, "messaging.links.batches:_extensions", "messaging.links.batches:_responder"],
        make=_questions,
        run=_read,
        size=24 << 10,
        most=1 << 20,
    ),
    CostProbe(name="bus: numbers without end", covers=_READING, make=_numbers, run=_read, size=32 << 10),
    CostProbe(
        name="bus: fragments",
        covers=["messaging.links.batches:BatchReader.feed", "messaging.links.batches:_fragment"],
        make=lambda size: (
            zenoh.handshake() + b"".join(map(zenoh.batch, zenoh.fragments(zenoh.push(KEY, bytes(size)), 300)))
        ),
        run=_read,
        size=64 << 10,
    ),
    KeptProbe(
        name="bus: a link over which tokens come without end",
        covers=["messaging.links.link:Way.move", "messaging.links.batches:BatchReader.feed"],
        attack=lambda: _way(_tokens(4 * MEBIBYTE)),  # a dozen times what a link may declare
        bound=8 * MEBIBYTE,
    ),
    KeptProbe(
        name="bus: tokens that are heard",
        covers=["messaging.backends.tokens:Tokens.took"],
        attack=_heard_tokens,
        bound=4 * MEBIBYTE,
    ),
    CostProbe(
        name="bus: a long key among thousands that are heard",
        covers=["messaging.backends.local_keys:LocalKeys.of"],
        make=_keys,
        run=_find,
        size=1_024,
        most=64 << 10,
    ),
    CostProbe(
        name="bus: tokens of ours",
        covers=["messaging.backends.tokens:Announced._fill"],
        make=_same,
        run=_announce,
        size=2_048,
        most=32 << 10,
    ),
    CostProbe(
        name="bus: offences",
        covers=["messaging.links.shut_out:ShutOut.note"],
        make=_same,
        run=_offences,
        size=1_024,
        most=16 << 10,
    ),
    CostProbe(
        name="rooms: what was agreed to",
        covers=["messaging.mending.agreed:Agreed._do"],
        make=_same,
        run=_agree,
        size=512,
        most=8 << 10,
    ),
    FailureProbe(
        name="bus: words that can't be said again",
        covers=["messaging.attending.said_again:SaidAgain._run"],
        throw=_words_that_can_t_be_said,
    ),
    FailureProbe(
        name="rooms: a second place that can't be written",
        covers=["messaging.mending.agreed:Agreed._do"],
        throw=_a_second_place_that_breaks,
    ),
)
