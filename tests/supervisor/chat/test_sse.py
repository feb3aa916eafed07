"""The events of a chat endpoint's stream, and what a hostile endpoint may make us keep of them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.supervisor.chat import sse
from sublet.supervisor.chat.sse import MAX_EVENT_BYTES, MalformedReply
from support.at_once import events_of


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(b"data: a\n\ndata: b\n\n", ["a", "b"], id="two"),
        pytest.param(b"data: a\r\n\r\ndata: b\r\rdata: c\n\r\n", ["a", "b", "c"], id="each kind of line end"),
        pytest.param(b"data:a\ndata: b\ndata:  c\n\n", ["a\nb\n c"], id="several lines, one space is none of it"),
        pytest.param(b": hello\nid: 4\nevent: x\nretry: 9\ndata: a\n\n\n\n", ["a"], id="names, ids and comments"),
        pytest.param(b"id: 4\n\n\n: alive\n\ndata: a\n\n", ["a"], id="without data"),
        pytest.param(b"data: a", ["a"], id="its end ends the event"),
        pytest.param(b"data: a\r", ["a"], id="its end ends the event, half a line end"),
        pytest.param("data: \u2028\x85\x0b\x0cé\n\n".encode(), ["\u2028\x85\x0b\x0cé"], id="no other line ends"),
        pytest.param(b"", [], id="nothing"),
    ],
)
@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_events(stream: bytes, expected: list[str], step: int) -> None:
    assert events_of(stream[at : at + step] for at in range(0, len(stream), step)) == expected


_line = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8)


@given(st.lists(st.lists(_line, min_size=1, max_size=3)), st.sampled_from(["\n", "\r\n", "\r"]), st.integers(1, 9))
def test_what_was_sent_arrives_whatever_the_pieces(events: list[list[str]], end: str, step: int) -> None:
    stream = "".join("".join(f"data: {line}{end}" for line in event) + end for event in events).encode()
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert events_of(pieces) == [data for event in events if (data := "\n".join(event))]


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(b"x" * 4096, id="a line without end"),
        pytest.param(b"data: a\n", id="an event without end"),
        pytest.param(b": a\n", id="comments"),
        pytest.param(b"event: a\n", id="names"),
        pytest.param(b"\n", id="nothing at all"),
    ],
)
def test_an_event_has_a_bound_in_bytes(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1 << 16)
    taken = 0

    def pieces() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += len(piece)
            yield piece

    with pytest.raises(MalformedReply, match="too large"):
        events_of(pieces())
    assert taken <= (1 << 16) + len(piece)


def test_many_events_are_no_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    assert len(events_of([b"data: a\n\n"] * 100)) == 100


@pytest.mark.parametrize("stream", [b"data: \xff\n\n", b"data: \xc3", b"data: \xed\xa0\x80\n\n"])
def test_other_than_utf8_is_refused(stream: bytes) -> None:
    with pytest.raises(MalformedReply, match="UTF-8"):
        events_of(stream[at : at + 1] for at in range(len(stream)))


def test_a_line_in_crumbs_takes_no_more_memory_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = MAX_EVENT_BYTES // 4
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", bound)

    def crumbs() -> Iterator[bytes]:
        yield b"data: "
        for _ in range(bound // 16):
            yield "é".encode()

    tracemalloc.start()
    try:
        events_of(crumbs())
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 4 * bound
