"""What the relay remembers and does across a daemon's restart, without any process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sublet.mcp_server.relay_session import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    MAX_IN_FLIGHT,
    MAX_LINE,
    Lines,
    RelaySession,
    id_at_end,
    parse,
)
from support.mcp_face import INITIALIZE, INITIALIZED, call

VERSION = "2025-11-25"


def line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


def result(request_id: object, **fields: object) -> bytes:
    return line({"jsonrpc": "2.0", "id": request_id, "result": fields})


def sent(session: RelaySession) -> list[dict[str, Any]]:
    """Deliver everything that may be delivered now, and return it."""
    found: list[dict[str, Any]] = []
    while (frame := session.next_frame()) is not None:
        found.append(json.loads(frame.line))
        session.delivered()
    return found


def shown(session: RelaySession) -> list[dict[str, Any]]:
    """Return what the host got since the last time."""
    found = [json.loads(text) for text in session.outbox.split(b"\n") if text]
    session.outbox.clear()
    return found


@pytest.fixture
def session() -> RelaySession:
    """A session of the 2025 era after its handshake."""
    found = RelaySession()
    found.connected()
    found.from_host(line(INITIALIZE))
    found.from_host(line(INITIALIZED))
    sent(found)
    found.from_daemon(result(1, protocolVersion=VERSION))
    shown(found)
    return found


def reconnect(session: RelaySession) -> list[dict[str, Any]]:
    """Lose the daemon and greet the next one; return all that it gets."""
    session.lost()
    session.connected()
    got = sent(session)
    session.from_daemon(result(1, protocolVersion=VERSION))
    return got + sent(session)


def test_handshake_is_repeated_and_its_answer_dropped(session: RelaySession) -> None:
    assert reconnect(session) == [INITIALIZE, INITIALIZED]
    assert shown(session) == []
    assert reconnect(session) == [INITIALIZE, INITIALIZED]


def test_nothing_overtakes_the_repeated_handshake(session: RelaySession) -> None:
    session.lost()
    session.from_host(line(call(2, "delegate")))
    session.connected()
    assert sent(session) == [INITIALIZE]
    session.from_daemon(result(1, protocolVersion=VERSION))
    assert [m["method"] for m in sent(session)] == ["notifications/initialized", "tools/call"]


def test_what_only_reads_is_sent_again_and_answered_once(session: RelaySession) -> None:
    requests = [
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        call(3, "delegate_output", delegation_id="dlg_1"),
        call("4", "directory"),
    ]
    for request in requests:
        session.from_host(line(request))
    sent(session)
    assert reconnect(session) == [INITIALIZE, INITIALIZED, *requests]
    assert shown(session) == []
    session.from_daemon(result(3))
    assert [m["id"] for m in shown(session)] == [3]


def test_what_may_have_had_its_effect_is_answered_with_an_error(session: RelaySession) -> None:
    session.from_host(line(call(2, "delegate")))
    session.from_host(line({"jsonrpc": "2.0", "id": 3, "method": "subscriptions/listen"}))
    sent(session)
    assert reconnect(session) == [INITIALIZE, INITIALIZED]
    first, second = shown(session)
    assert (first["id"], first["error"]["code"]) == (2, INTERNAL_ERROR)
    assert "idempotency_key" in first["error"]["message"]
    assert second["id"] == 3
    assert session.in_flight == {}


def test_what_no_daemon_has_read_is_sent_to_the_next(session: RelaySession) -> None:
    session.from_host(line(call(2, "delegate")))
    assert reconnect(session) == [INITIALIZE, INITIALIZED, call(2, "delegate")]
    assert shown(session) == []


def test_subscriptions_are_made_again_and_their_answers_dropped(session: RelaySession) -> None:
    def about(request_id: int, method: str, uri: str) -> dict[str, object]:
        return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {"uri": uri}}

    kept, dropped = about(2, "resources/subscribe", "a"), about(3, "resources/subscribe", "b")
    for request in (kept, dropped, about(4, "resources/unsubscribe", "b")):
        session.from_host(line(request))
        sent(session)
        session.from_daemon(result(request["id"]))
    shown(session)
    for _ in range(2):
        assert reconnect(session) == [INITIALIZE, INITIALIZED, kept]
        session.from_daemon(result(2))
        assert shown(session) == []


def test_losing_the_daemon_during_the_repeated_handshake_repeats_it_once_more(session: RelaySession) -> None:
    session.lost()
    session.connected()
    sent(session)
    assert reconnect(session) == [INITIALIZE, INITIALIZED]
    session.lost()
    session.connected()
    assert reconnect(session) == [INITIALIZE, INITIALIZED]


def test_an_unanswered_handshake_is_simply_sent_again() -> None:
    session = RelaySession()
    session.connected()
    session.from_host(line(INITIALIZE))
    sent(session)
    session.lost()
    session.connected()
    assert sent(session) == [INITIALIZE]
    session.from_daemon(result(1, protocolVersion=VERSION))
    assert [m["id"] for m in shown(session)] == [1]


def test_another_protocol_version_is_not_taken_for_the_same_session(session: RelaySession) -> None:
    session.lost()
    session.connected()
    sent(session)
    with pytest.raises(ValueError, match="does not take up"):
        session.from_daemon(result(1, protocolVersion="2024-11-05"))


def test_the_2026_era_needs_no_handshake() -> None:
    session = RelaySession()
    session.connected()
    session.from_host(line({"jsonrpc": "2.0", "id": 1, "method": "server/discover"}))
    sent(session)
    session.from_daemon(result(1))
    session.lost()
    session.connected()
    assert sent(session) == []


def test_answers_to_a_daemon_that_is_gone_do_not_reach_the_next(session: RelaySession) -> None:
    ask = line({"jsonrpc": "2.0", "id": 1, "method": "roots/list"})
    session.from_daemon(ask)
    reconnect(session)
    session.from_host(result(1, roots=[]))
    assert sent(session) == []
    session.from_daemon(ask)
    session.from_host(result(1, roots=[]))
    assert len(sent(session)) == 1


def test_a_new_daemon_is_wanted_only_for_what_nobody_has_read(session: RelaySession) -> None:
    session.from_host(line(call(2, "delegate_output")))
    sent(session)
    session.lost()
    assert not session.wants_daemon
    session.from_host(line({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}))
    assert not session.wants_daemon
    session.from_host(line(call(3, "directory")))
    assert session.wants_daemon


def test_giving_up_answers_everything_but_what_was_cancelled(session: RelaySession) -> None:
    session.lost()
    for number in (2, 3):
        session.from_host(line(call(number, "delegate")))
    session.from_host(line({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}))
    session.give_up("it did not start")
    (answer,) = shown(session)
    assert answer["id"] == 3
    assert answer["error"] == {"code": INTERNAL_ERROR, "message": "it did not start"}
    assert session.queued_bytes == 0


def test_requests_under_way_are_bounded(session: RelaySession) -> None:
    for number in range(MAX_IN_FLIGHT + 1):
        session.from_host(line({"jsonrpc": "2.0", "id": f"n{number}", "method": "ping"}))
        sent(session)
    (answer,) = shown(session)
    assert answer["id"] == f"n{MAX_IN_FLIGHT}"
    assert answer["error"]["code"] == INTERNAL_ERROR


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"id": 1}\n', {"id": 1}),
        (b' {"a": "\\u00fc"} ', {"a": "\u00fc"}),
        (b"[1]", None),
        (b"{", None),
        (b"{} {}", None),
        (b"\xff", None),
        (b"", None),
        (b"[" * 100_000, None),
        (b'{"n": ' + b"9" * 5000 + b"}", None),
    ],
)
def test_parse_takes_objects_only(text: bytes, value: object) -> None:
    assert parse(text) == value


def test_lines_come_whole_however_they_arrive() -> None:
    text = b"one\n\ntwo three\nfour"
    for size in range(1, len(text)):
        lines = Lines()
        found = [whole for at in range(0, len(text), size) for whole in lines.feed(text[at : at + size])]
        assert found == [b"one\n", b"two three\n"]
        assert lines.feed(b"\n") == [b"four\n"]


@pytest.mark.parametrize("size", [1 << 16, 1 << 20, 1 << 30])
def test_a_line_that_is_too_long_costs_no_memory_and_only_itself(size: int) -> None:
    lines = Lines()
    head, tail = b'{"jsonrpc":"2.0","id":7,"method":"x"', b',"jsonrpc":"2.0","id":"q"}'
    text = head + b"x" * MAX_LINE + tail + b"\nnext\n"
    found: list[bytes | tuple[bytes, bytes]] = []
    for at in range(0, len(text), size):
        found += lines.feed(text[at : at + size])
    cut, after = found
    assert after == b"next\n"
    assert isinstance(cut, tuple)
    assert cut[0].startswith(head)
    assert cut[1].endswith(tail)
    assert len(cut[0]) + len(cut[1]) < 1024
    session = RelaySession()
    session.from_host(cut)
    (answer,) = shown(session)
    assert (answer["id"], answer["error"]["code"]) == (7, INVALID_REQUEST)


def test_the_id_of_a_long_line_is_where_the_sdks_put_it() -> None:
    assert id_at_end(b'{"jsonrpc": "2.0", "id": "a,b", "m', b"") is None
    assert id_at_end(b'{"jsonrpc": "2.0", "id": "ab", "m', b"") == "ab"
    assert id_at_end(b'{"method":"x","params":{', b'"},"jsonrpc":"2.0","id":12}\n') == 12
    assert id_at_end(b"xxx", b"yyy") is None
    assert id_at_end(b'{"jsonrpc":"2.0","id":{"a":1', b"") is None
