"""The relay between sshfs and one lender's server after another, against both sides as the test plays them."""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublet.workspace.mount.relay import (
    MAX_FRAME,
    MAX_HANDLE_BYTES,
    ClientViolation,
    LinkState,
    LinkViolation,
    SftpRelay,
)
from sublet.workspace.sftp.wire import MAX_PACKET, Op, ReplyType, Status
from support.budgets import examples

INIT = struct.pack(">IBI", 5, Op.INIT, 3)
VERSION = struct.pack(">IBI", 5, ReplyType.VERSION, 3)


def frame(kind: int, number: int, *parts: bytes) -> bytes:
    body = struct.pack(">BI", kind, number) + b"".join(parts)
    return struct.pack(">I", len(body)) + body


def text(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def status(number: int, code: int) -> bytes:
    return frame(ReplyType.STATUS, number, struct.pack(">III", code, 0, 0))


def fields(packet: bytes) -> tuple[int, int, bytes]:
    kind, number = struct.unpack_from(">BI", packet, 4)
    return kind, number, packet[9:]


def first_text(body: bytes) -> tuple[bytes, bytes]:
    (size,) = struct.unpack_from(">I", body)
    assert 4 + size <= len(body)
    return body[4 : 4 + size], body[4 + size :]


def split(data: bytearray) -> list[bytes]:
    """Take the whole frames out of ``data``."""
    found = []
    while len(data) >= 4:
        (size,) = struct.unpack_from(">I", data)
        assert size <= MAX_PACKET
        if len(data) < 4 + size:
            break
        found.append(bytes(data[: 4 + size]))
        del data[: 4 + size]
    return found


@dataclass
class Server:
    """A lender's server that numbers its handles from nought on every link, and refuses any that it did not give."""

    arrived: bytearray = field(default_factory=bytearray)
    requests: deque[bytes] = field(default_factory=deque)
    said: bytearray = field(default_factory=bytearray)
    open: dict[bytes, bytes] = field(default_factory=dict)
    given: int = 0

    def answer(self) -> None:
        """Answer the oldest request."""
        self.requests.extend(split(self.arrived))
        if not self.requests:
            return
        kind, number, body = fields(self.requests.popleft())
        if kind == Op.INIT:
            self.said += VERSION
        elif kind == Op.OPEN:
            path, _ = first_text(body)
            handle = struct.pack(">I", self.given)
            self.given += 1
            self.open[handle] = path
            self.said += frame(ReplyType.HANDLE, number, text(handle))
        elif kind == Op.LSTAT:
            self.said += frame(ReplyType.ATTRS, number, bytes(4))
        else:
            if kind == Op.EXTENDED:
                _, body = first_text(body)
            handle, rest = first_text(body)
            assert handle in self.open, "a handle of another link has come here"
            if kind == Op.READ:
                assert rest == bytes(12)
                self.said += frame(ReplyType.DATA, number, text(self.open[handle]))
            else:
                if kind == Op.CLOSE:
                    del self.open[handle]
                self.said += status(number, Status.OK)


@dataclass
class Client:
    """sshfs: it uses its handles until it has closed them, and wants one answer to everything."""

    relay: SftpRelay
    out: bytearray = field(default_factory=bytearray)
    heard: bytearray = field(default_factory=bytearray)
    number: int = 0
    asked: dict[int, tuple[int, bytes, bytes]] = field(default_factory=dict)
    handles: dict[bytes, bytes] = field(default_factory=dict)

    def ask(self, kind: int, pick: int) -> None:
        self.number += 1
        path = handle = b""
        if kind in (Op.OPEN, Op.LSTAT):
            path = b"/file-%d" % self.number
            body = text(path)
        else:
            if not self.handles:
                return
            handle = list(self.handles)[pick % len(self.handles)]
            body = text(handle)
            if kind == Op.READ:
                body += bytes(12)
            elif kind == Op.WRITE:
                body += bytes(8) + text(b"x" * (pick % 700))
            elif kind == Op.EXTENDED:
                body = text(b"fsync@openssh.com") + body
            if kind == Op.CLOSE:
                path = self.handles.pop(handle)
        self.asked[self.number] = kind, path, handle
        self.out += frame(kind, self.number, body)

    def hear(self, data: bytes) -> None:
        self.heard += data
        for packet in split(self.heard):
            kind, number, body = fields(packet)
            if kind == ReplyType.VERSION:
                continue
            asked, path, handle = self.asked.pop(number)  # a second answer, or one to nothing, is a KeyError
            if kind == ReplyType.HANDLE:
                shown, _ = first_text(body)
                assert asked == Op.OPEN
                assert shown not in self.handles
                self.handles[shown] = path
            elif kind == ReplyType.DATA:
                assert asked == Op.READ
                if handle in self.handles:
                    assert first_text(body)[0] == self.handles[handle], "another file than the one that was opened"
            elif asked == Op.CLOSE:
                assert struct.unpack_from(">I", body) == (Status.OK,)


class World:
    """Both sides, and what is on its way between them."""

    def __init__(self) -> None:
        self.relay = SftpRelay()
        self.client = Client(self.relay)
        self.server: Server | None = Server()
        self.client.out += INIT
        self.move_requests(99)
        assert self.server is not None
        self.server.answer()
        self.move_answers(99)
        assert self.relay.state is LinkState.UP

    def flush(self) -> None:
        if self.server is not None:
            self.server.arrived += b"".join(self.relay.to_server)
        else:
            assert not self.relay.to_server
        self.relay.to_server.clear()
        answers = b"".join(self.relay.to_client)
        self.relay.to_client.clear()
        self.client.hear(answers)

    def move_requests(self, size: int) -> None:
        """Let the relay see ``size`` more bytes than it has left over."""
        piece = self.client.out[: min(len(self.client.out), size)]
        done = self.relay.from_client(memoryview(bytes(piece)))
        del self.client.out[:done]
        self.flush()

    def move_answers(self, size: int) -> None:
        if self.server is not None and self.server.said:
            piece = bytes(self.server.said[:size])
            del self.server.said[: len(piece)]
            self.relay.from_server([piece])
            self.flush()

    def lose(self) -> None:
        if self.server is not None:
            self.relay.lose()
            self.server = None
            self.flush()

    def attach(self) -> None:
        if self.server is None:
            self.server = Server()
            self.relay.attach()
            self.flush()

    def run(self) -> None:
        """Let everything that is on its way arrive and be answered."""
        while self.client.out:
            self.move_requests(2000)
        if self.server is not None:
            while self.server.requests or self.server.arrived:
                self.server.answer()
            self.move_answers(1 << 20)

    def reopen(self, count: int) -> None:
        """Open files, lose the link, get another, open more, and read whatever is open."""
        for again in range(2):
            for _ in range(count):
                self.client.ask(Op.OPEN, 0)
            self.run()
            if not again:
                self.lose()
                self.attach()
                self.run()
        for pick in range(len(self.client.handles)):
            self.client.ask(Op.READ, pick)
        self.run()

    def release(self) -> None:
        self.relay.release(set(self.relay.held))
        self.flush()


KINDS = (Op.OPEN, Op.LSTAT, Op.READ, Op.WRITE, Op.CLOSE, Op.FSTAT, Op.EXTENDED)
STEPS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from([kind for kind in KINDS if kind != Op.FSTAT]), st.integers(0, 2000)),
    st.tuples(st.just("requests"), st.integers(1, 900)),
    st.tuples(st.just("serve"), st.integers(1, 4)),
    st.tuples(st.just("answers"), st.integers(1, 120)),
    st.tuples(st.just("lose")),
    st.tuples(st.just("attach")),
    st.tuples(st.just("release")),
    st.tuples(st.just("run")),
    st.tuples(st.just("run")),
    st.tuples(st.just("reopen"), st.integers(0, 3)),
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_every_request_has_one_answer_and_no_handle_outlives_its_link(steps: list[tuple[str, int, int]]) -> None:
    world = World()
    for step in steps:
        match step:
            case ("ask", kind, pick):
                world.client.ask(kind, pick)
            case ("requests", size):
                world.move_requests(size)
            case ("serve", count):
                for _ in range(count):
                    if world.server is not None:
                        world.server.answer()
            case ("answers", size):
                world.move_answers(size)
            case ("reopen", count):
                world.reopen(count)
            case (what,):
                getattr(world, str(what))()
    while world.client.out:
        world.move_requests(2000)
    world.lose()
    world.release()
    assert world.client.asked == {}
    assert world.client.heard == b""
    assert world.relay.waiting == 0


def up(relay: SftpRelay | None = None) -> SftpRelay:
    relay = relay or SftpRelay()
    relay.from_client(memoryview(INIT))
    relay.from_server([VERSION])
    relay.to_client.clear()
    relay.to_server.clear()
    return relay


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=8), st.booleans())
def test_whatever_a_server_says_ends_at_most_its_link(pieces: list[bytes], opening: bool) -> None:
    relay = up()
    relay.from_client(memoryview(frame(Op.LSTAT, 7, text(b"/a")) + frame(Op.OPEN, 8, text(b"/b"), bytes(8))))
    if opening:
        relay.lose()
        relay.attach()
    before = len(relay.to_client)
    try:
        for piece in pieces:
            relay.from_server([piece])
            assert relay._have <= MAX_FRAME
    except LinkViolation:
        pass
    relay.lose()
    answered = len(split(bytearray(b"".join(relay.to_client))))
    assert answered == 2, "once each"
    assert before in (0, 2)
    assert relay.waiting == 0


@pytest.mark.parametrize(
    "said",
    [
        struct.pack(">I", MAX_PACKET + 1),
        struct.pack(">I", 0),
        status(9, Status.OK),
        frame(ReplyType.DATA, 7, text(b"data that an LSTAT never has")),
        frame(ReplyType.HANDLE, 8, text(b"")),
        frame(ReplyType.HANDLE, 8, text(b"h" * (MAX_HANDLE_BYTES + 1))),
        frame(ReplyType.HANDLE, 8, struct.pack(">I", 99) + b"short"),
        frame(ReplyType.HANDLE, 8, text(b"h"), b"more"),
        frame(77, 7),
        VERSION,
    ],
)
def test_a_server_that_does_not_keep_to_the_protocol_loses_its_link(said: bytes) -> None:
    relay = up()
    relay.from_client(memoryview(frame(Op.LSTAT, 7, text(b"/a")) + frame(Op.OPEN, 8, text(b"/b"), bytes(8))))

    with pytest.raises(LinkViolation):
        relay.from_server([said])

    relay.lose()
    assert relay.interrupted == 2


@pytest.mark.parametrize(
    "said", [frame(ReplyType.VERSION, 4), status(1, Status.OK), frame(ReplyType.HANDLE, 1, text(b"h"))]
)
def test_a_new_link_is_up_only_once_its_server_has_said_our_version(said: bytes) -> None:
    relay = up()
    relay.lose()
    relay.attach()
    assert b"".join(relay.to_server) == INIT

    with pytest.raises(LinkViolation):
        relay.from_server([said])


@pytest.mark.parametrize(
    "asked",
    [
        INIT,
        struct.pack(">IBI", MAX_PACKET + 1, Op.LSTAT, 1),
        struct.pack(">IBI", 1, Op.LSTAT, 1),
        frame(Op.READ, 1, struct.pack(">I", 50) + b"short"),
        frame(Op.LSTAT, 1, text(b"/a")) * 2,
    ],
)
def test_what_sshfs_never_does_ends_the_mount(asked: bytes) -> None:
    with pytest.raises(ClientViolation):
        up().from_client(memoryview(asked))


def test_whole_frames_pass_as_they_came_in_one_piece() -> None:
    relay = up()
    asked = frame(Op.LSTAT, 1, text(b"/a")) + frame(Op.STAT, 2, text(b"/b")) + frame(Op.REMOVE, 3, text(b"/c"))

    assert relay.from_client(memoryview(asked + b"\0\0")) == len(asked)

    assert [bytes(piece) for piece in relay.to_server] == [asked]
    said = status(3, Status.OK) + frame(ReplyType.ATTRS, 1, bytes(4))
    relay.from_server([said[:5], said[5:], status(2, Status.EOF)[:7]])
    assert [bytes(piece) for piece in relay.to_client] == [said]


def test_a_read_without_its_link_is_held_until_its_program_knows() -> None:
    relay = up()
    relay.from_client(memoryview(frame(Op.OPEN, 1, text(b"/a"), bytes(8))))
    relay.from_server([frame(ReplyType.HANDLE, 1, text(b"h"))])
    relay.from_client(memoryview(frame(Op.READ, 2, text(b"h"), bytes(12))))
    relay.to_client.clear()

    relay.lose()
    relay.from_client(memoryview(frame(Op.READ, 3, text(b"h"), bytes(12))))

    assert relay.to_client == []
    assert relay.held == {2, 3}
    relay.release({2})
    assert [fields(bytes(piece))[1] for piece in relay.to_client] == [2]
    assert relay.held == {3}


def test_a_closed_handle_is_forgotten_whatever_the_server_says_to_it() -> None:
    relay = up()
    for number, code in ((1, Status.OK), (3, Status.FAILURE)):
        relay.from_client(memoryview(frame(Op.OPEN, number, text(b"/a"), bytes(8))))
        relay.from_server([frame(ReplyType.HANDLE, number, text(b"h"))])
        relay.from_client(memoryview(frame(Op.CLOSE, number + 1, text(b"h"))))
        relay.from_server([status(number + 1, code)])
        assert bytes(relay.to_client[-2])[-1:] == b"h", "the server's own value may be used again"
    assert relay._handles == {}


def test_the_sentinel_is_held_and_everything_else_fails_while_reads_are_failed() -> None:
    relay = up()
    relay.suspended, relay.sentinel = True, b".sentinel"
    asked = frame(Op.LSTAT, 1, text(b"/workspace/.sentinel")) + frame(Op.LSTAT, 2, text(b"/workspace/other"))

    relay.from_client(memoryview(asked))

    assert relay.to_server == []
    assert relay.sentinel_id == 1
    assert [fields(bytes(piece))[1] for piece in relay.to_client] == [2]
    relay.suspended = False
    relay.release(set())
    assert [fields(bytes(piece))[1] for piece in relay.to_client] == [2, 1]
    relay.from_client(memoryview(frame(Op.LSTAT, 3, text(b"/workspace/.sentinel"))))
    assert len(relay.to_server) == 1
