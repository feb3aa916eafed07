"""What the core makes of an operation: its answer, what has to be found out first, errors, and a lease that ends."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator
from typing import cast

import pytest

from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.export import LeaseUsage
from sublet.workspace.sftp.again import MAX_LOOKS
from sublet.workspace.sftp.core import _MAX_PIECES as MAX_PIECES
from sublet.workspace.sftp.core import ProtocolAbort, SftpCore
from sublet.workspace.sftp.handles import HandleBudget, Handles
from sublet.workspace.sftp.reply import Operation, Reply, SlowReply, SteppedReply, ThreadWork
from sublet.workspace.sftp.wire import MAX_PACKET, MalformedPacket, Reader, Status, pack_error, pack_status
from sublet.workspace.view.export_view import ExportView
from support.sftp_client import INIT, frame

OURS, REQUEST = 99, 0x01020304
DONE = pack_status(REQUEST, Status.OK, b"done")
OVER = pack_status(REQUEST, Status.NO_CONNECTION, b"the lease is over")
AGAIN = pack_error(REQUEST, OSError(errno.EAGAIN, ""))
BUSY = OSError(errno.EBUSY, "busy", "/real/path")


class Scripted:
    """A session with one operation more, which does what the test says."""

    def __init__(self, operation: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
        self.live = True
        self.usage = LeaseUsage()
        self.failed: list[OSError] = []
        monkeypatch.setattr(self.usage.quota, "failed", self.failed.append)
        handles = Handles(HandleBudget(3))
        self.core = SftpCore(cast(ExportView, object()), self.usage, handles, lambda: self.live)
        self.core.receive(INIT)
        assert self.core.has_request()
        assert isinstance(self.core.reply(), bytes)
        cast("dict[int, Operation]", self.core.operations)[OURS] = operation

    def ask(self, body: bytes = b"") -> Reply:
        self.core.receive(frame(OURS, REQUEST, body))
        assert self.core.has_request()
        return self.core.reply()


def unknown(done: list[str]) -> NotKnownYet:
    return NotKnownYet(lambda: done.append("learned"), lambda: done.append("dropped"))


def steps(*outcomes: object) -> Generator[None, None, bytes | SlowReply]:
    """Do what each says: wait, raise, or return."""
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is not None:
            return cast(bytes, outcome)
        yield
    raise AssertionError


def taken(reply: Reply) -> bytes | SlowReply:
    """Take all steps of a reply."""
    assert isinstance(reply, SteppedReply)
    while True:
        try:
            next(reply.steps)
        except StopIteration as end:
            return cast("bytes | SlowReply", end.value)


def test_an_answer_is_the_operations_and_it_gets_the_request_and_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, bytes]] = []

    def operation(request: int, fields: Reader) -> Reply:
        asked.append((request, fields.string()))
        with pytest.raises(MalformedPacket):
            fields.u32()
        return DONE

    session = Scripted(operation, monkeypatch)
    assert session.ask(b"\0\0\0\2ab") == DONE
    assert asked == [(REQUEST, b"ab")]
    assert session.usage.operations == 1
    session.live = False
    assert session.ask(b"\0\0\0\2ab") == OVER
    assert (len(asked), session.usage.operations) == (1, 2)


@pytest.mark.parametrize("how", ["at once", "in a step"])
def test_an_error_is_told_to_the_client_and_a_full_disk_to_the_lender(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def operation(request: int, fields: Reader) -> Reply:
        if how == "in a step":
            return SteppedReply(steps(None, BUSY))
        raise BUSY

    session = Scripted(operation, monkeypatch)
    reply = session.ask()
    assert (reply if how == "at once" else taken(reply)) == pack_error(REQUEST, BUSY)
    assert session.failed == [BUSY]


def test_fields_that_are_not_there_make_a_bad_message(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Scripted(lambda _, fields: fields.string(), monkeypatch)
    assert session.ask(b"\0\0") == pack_status(REQUEST, Status.BAD_MESSAGE, b"malformed request")
    assert session.failed == []


@pytest.mark.parametrize("how", ["at once", "in a step"])
@pytest.mark.parametrize("times", [1, 3, MAX_LOOKS, MAX_LOOKS + 1])
def test_what_is_not_known_yet_is_learned_and_the_request_done_again_a_number_of_times(
    how: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    calls: list[bytes] = []

    def operation(request: int, fields: Reader) -> Reply:
        calls.append(fields.string())
        outcome: object = unknown(done) if len(calls) <= times else DONE
        if how == "in a step":
            return SteppedReply(steps(None, outcome))
        if isinstance(outcome, Exception):
            raise outcome
        return DONE

    session = Scripted(operation, monkeypatch)
    reply: Reply = session.ask(b"\0\0\0\2ab")
    session.core.receive(b"\0\0\0")  # of the next request, which waits
    while True:
        end = taken(reply) if isinstance(reply, SteppedReply) else reply
        if isinstance(end, bytes):
            break
        assert end.finish is None
        assert end.run() == b""
        assert session.core.has_request()
        reply = session.core.reply()
    looks = min(times, MAX_LOOKS)
    assert end == (DONE if times <= MAX_LOOKS else AGAIN)
    assert done == ["learned"] * looks + ["dropped"] * (times - looks)
    assert calls == [b"ab"] * (times + (times <= MAX_LOOKS))
    assert not session.core.has_request()
    assert session.core.waiting == 3
    assert session.failed == []


def test_others_have_the_loop_between_steps_and_a_lease_that_ends_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    def watched() -> Generator[None, None, bytes | SlowReply]:
        try:
            yield
            yield
        finally:
            closed.append("closed")
        return DONE

    session = Scripted(lambda *_: SteppedReply(watched()), monkeypatch)
    reply = session.ask()
    assert isinstance(reply, SteppedReply)
    assert [next(reply.steps), next(reply.steps), closed] == [None, None, []]
    assert taken(reply) == DONE
    assert closed == ["closed"]
    reply = session.ask()
    assert isinstance(reply, SteppedReply)
    next(reply.steps)
    session.live = False
    assert taken(reply) == OVER
    assert closed == ["closed", "closed"]


def slow(finish: Callable[[], bytes] | None, work: bytes = b"") -> Operation:
    return lambda *_: SlowReply(ThreadWork(lambda: work, lambda: None), finish)


def test_what_is_done_in_a_thread_answers_itself_or_is_finished_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Scripted(slow(None, DONE), monkeypatch)
    reply = session.ask()
    assert isinstance(reply, SlowReply)
    assert (reply.run(), reply.finish) == (DONE, None)
    outcomes: list[bytes | Exception] = [DONE, BUSY, DONE]

    def finish() -> bytes:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    session = Scripted(slow(finish), monkeypatch)
    replies = [cast(SlowReply, session.ask()) for _ in range(3)]
    finishes = [reply.finish for reply in replies if reply.finish is not None]
    assert [reply.run() for reply in replies] == [b""] * 3
    assert [ask() for ask in finishes[:2]] == [DONE, pack_error(REQUEST, BUSY)]
    assert session.failed == [BUSY]
    session.live = False
    assert finishes[2]() == OVER
    assert len(outcomes) == 1


@pytest.mark.parametrize("times", [1, MAX_LOOKS, MAX_LOOKS + 1])
def test_what_turns_out_unknown_only_when_it_is_finished_is_learned_as_well(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    finished: list[None] = []

    def finish() -> bytes:
        finished.append(None)
        if len(finished) <= times:
            raise unknown(done)
        return DONE

    session = Scripted(slow(finish), monkeypatch)
    reply = session.ask()
    answer = b""
    while not answer:
        assert isinstance(reply, SlowReply)
        assert reply.run() == b""
        answer = reply.finish() if reply.finish is not None else b""
        if not answer:
            assert session.core.has_request()
            reply = session.core.reply()
    looks = min(times, MAX_LOOKS)
    assert answer == (DONE if times <= MAX_LOOKS else AGAIN)
    assert done == ["learned"] * looks + ["dropped"] * (times - looks)
    assert not session.core.has_request()


def test_a_session_that_ends_drops_what_nobody_will_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def finish() -> bytes:
        raise unknown(done)

    session = Scripted(slow(finish), monkeypatch)
    reply = session.ask()
    assert isinstance(reply, SlowReply)
    assert reply.finish is not None
    assert reply.finish() == b""
    session.core.receive(b"more")
    for _ in range(2):
        session.core.close()
        assert done == ["dropped"]
        assert session.core.waiting == 0
        assert not session.core.has_request()


@pytest.mark.parametrize("size", [1, 3, 7, 10_000])
def test_requests_may_come_in_any_pieces_and_what_waits_is_counted(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[bytes] = []

    def operation(request: int, fields: Reader) -> Reply:
        bodies.append(fields.string())
        return DONE

    session = Scripted(operation, monkeypatch)
    sent = [bytes((number,)) * length for number, length in enumerate((0, 1, 5, 300, 2))]
    stream = b"".join(frame(OURS, REQUEST, len(body).to_bytes(4, "big") + body) for body in sent)
    came = done = 0
    for start in range(0, len(stream), size):
        session.core.receive(stream[start : start + size])
        came += len(stream[start : start + size])
        while session.core.has_request():
            assert session.core.has_request()
            assert session.core.waiting == came - done
            session.core.reply()
            done += 13 + len(bodies[-1])
            assert session.core.waiting == came - done
    assert bodies == sent
    assert session.core.waiting == 0


def test_a_client_that_sends_byte_by_byte_has_few_pieces_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Scripted(lambda *_: DONE, monkeypatch)
    for count in range(1, MAX_PIECES + 1):
        session.core.receive(b"x")
        assert len(session.core._later) == count
    session.core.receive(b"x")
    assert session.core._later == [b"x" * (MAX_PIECES + 1)]
    session.core.close()
    assert (session.core._later, session.core._data) == ([], b"")


def test_what_is_done_is_kept_no_longer_and_a_session_begins_anew_where_it_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Scripted(lambda *_: DONE, monkeypatch)
    for _ in range(3):
        session.core.receive(frame(OURS, REQUEST, b"body") * 2)
        for left in (13, 0):
            assert session.core.has_request()
            assert session.core.reply() == DONE
            assert session.core.waiting == left
        assert session.core._data == b""


def test_a_packet_has_its_shortest_and_its_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def operation(request: int, fields: Reader) -> Reply:
        lengths.append(len(fields.string()))
        return DONE

    for size in (5, MAX_PACKET):
        session = Scripted(operation if size > 5 else lambda *_: DONE, monkeypatch)
        session.core.receive(size.to_bytes(4, "big"))
        assert not session.core.has_request()
        length = b"" if size == 5 else (size - 9).to_bytes(4, "big")
        session.core.receive(bytes((OURS,)) + REQUEST.to_bytes(4, "big") + length + b"x" * (size - 5 - len(length)))
        assert session.core.has_request()
        assert session.core.reply() == DONE
    assert lengths == [MAX_PACKET - 9]
    for size in (0, 4, MAX_PACKET + 1):
        session = Scripted(operation, monkeypatch)
        session.core.receive(size.to_bytes(4, "big"))
        with pytest.raises(ProtocolAbort, match=f"a packet of {size} bytes"):
            session.core.has_request()


@pytest.mark.parametrize(("kind", "version", "fits"), [(1, 3, True), (1, 6, True), (1, 2, False), (2, 3, False)])
def test_a_session_begins_with_a_version(kind: int, version: int, fits: bool) -> None:
    core = SftpCore(cast(ExportView, object()), LeaseUsage(), Handles(HandleBudget(1)), lambda: False)
    core.receive(frame(kind, version, b""))
    assert core.has_request()
    if not fits:
        with pytest.raises(ProtocolAbort):
            core.reply()
        return
    hello = core.reply()
    assert isinstance(hello, bytes)
    assert hello[4:9] == b"\x02\0\0\0\x03"
    assert os.strerror(errno.EAGAIN).encode() in AGAIN
