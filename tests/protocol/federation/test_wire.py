"""Addresses, events, envelopes, states and pauses of federation, as the specification and federation-wire.md say."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from sublet.protocol.canonical import JsonValue
from sublet.protocol.chain import Chain
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.federation import envelope as wire
from sublet.protocol.federation.addresses import (
    AgentAddress,
    broadcast_room,
    default_node_name,
    federation_room,
    namespace,
    node_name,
)
from sublet.protocol.federation.envelope import (
    MAX_ENVELOPE_BYTES,
    MAX_EVENTS,
    Envelope,
    ServerPage,
    read_envelope,
    read_server,
    seal,
    seal_server,
)
from sublet.protocol.federation.errors import ADVICE, FederationCode, TaskRefused, code_of
from sublet.protocol.federation.events import (
    EVENTS,
    AgentMessage,
    AgentRegistered,
    Heartbeat,
    TaskRequest,
    event_content,
    failure_result,
    read_event,
)
from sublet.protocol.federation.retrying import DEFAULT_RETRY_POLICY
from sublet.protocol.federation.statuses import AgentStatus, Happens, NoSuchStep, step
from sublet.protocol.ids import fingerprint, node_id

KEY, OTHER = SigningKey(b"a" * 32), SigningKey(b"b" * 32)
PUBLIC = bytes(KEY.verify_key)
RECIPIENT = fingerprint(bytes(OTHER.verify_key))
NOW = 1_800_000_000.0

SPECIFIED: dict[str, dict[str, Any]] = {
    "registered": {
        "event_type": "io.cis.agent.registered",
        "agent_id": "worker-1",
        "node_id": "kitchen.local",
        "runtime_type": "claude",
        "capabilities": ["coding", "review", "test"],
        "timestamp": "2026-02-08T10:30:00Z",
    },
    "unregistered": {
        "event_type": "io.cis.agent.unregistered",
        "agent_id": "worker-1",
        "node_id": "kitchen.local",
        "reason": "shutdown",
        "timestamp": "2026-02-08T18:00:00Z",
    },
    "request": {
        "event_type": "io.cis.agent.task.request",
        "request_id": "req-uuid-123",
        "from_agent": "coordinator@living.local",
        "to_agent": "worker-1@kitchen.local",
        "task": {
            "task_id": "task-456",
            "prompt": "Implement a function to...",
            "context": "Rust project in /workspace",
            "system_prompt": "You are a senior Rust developer",
            "model": "claude-3-opus",
            "metadata": {},
        },
        "timeout_secs": 300,
        "timestamp": "2026-02-08T10:35:00Z",
    },
    "response": {
        "event_type": "io.cis.agent.task.response",
        "request_id": "req-uuid-123",
        "from_agent": "worker-1@kitchen.local",
        "to_agent": "coordinator@living.local",
        "result": {
            "success": True,
            "output": "Implementation completed...",
            "exit_code": 0,
            "metadata": {"tokens_used": 1500, "duration_ms": 45000},
        },
        "timestamp": "2026-02-08T10:35:45Z",
    },
    "message": {
        "event_type": "io.cis.agent.message",
        "message_id": "msg-uuid-789",
        "from_agent": "worker-1@kitchen.local",
        "to_agent": "coordinator@living.local",
        "message_type": "progress",
        "payload": {"percent": 50, "status": "compiling"},
        "timestamp": "2026-02-08T10:35:20Z",
    },
    "broadcast": {
        "event_type": "io.cis.agent.message",
        "message_id": "msg-uuid-999",
        "from_agent": "coordinator@living.local",
        "to_agent": None,
        "message_type": "announcement",
        "payload": {"message": "New task available"},
        "timestamp": "2026-02-08T10:40:00Z",
    },
    "heartbeat": {
        "event_type": "io.cis.agent.heartbeat",
        "agent_id": "worker-1",
        "node_id": "kitchen.local",
        "status": "idle",
        "timestamp": "2026-02-08T10:36:00Z",
    },
    "status_update": {
        "event_type": "io.cis.agent.status_update",
        "agent_id": "worker-1",
        "node_id": "kitchen.local",
        "status": "busy",
        "current_task": "task-456",
        "timestamp": "2026-02-08T10:35:05Z",
    },
}
"""The examples of the specification, letter for letter."""


@pytest.mark.parametrize("name", SPECIFIED)
def test_each_example_of_the_specification_is_read_flat_and_tagged_and_written_flat(name: str) -> None:
    flat = SPECIFIED[name]
    event = read_event(flat)
    assert event_content(event) == flat
    rest = {key: value for key, value in flat.items() if key != "event_type"}
    assert read_event({"event_type": flat["event_type"], "payload": rest}) == event


def test_the_seven_events_are_there_and_what_is_unknown_of_them_is_kept_or_refused() -> None:
    assert len(EVENTS) == 7
    odd = read_event({**SPECIFIED["registered"], "runtime_type": "open_code", "later": 1})
    assert isinstance(odd, AgentRegistered)
    assert odd.runtime_type == "open_code"
    running = read_event({**SPECIFIED["heartbeat"], "status": "running"})
    assert isinstance(running, Heartbeat)
    assert running.status == "running"
    plain = read_event({**SPECIFIED["request"], "timeout_secs": None, "task": {"task_id": "t", "prompt": "p"}})
    assert isinstance(plain, TaskRequest)
    assert plain.seconds == 300


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("registered", {"agent_id": "../etc"}),
        ("registered", {"node_id": "a/b"}),
        ("registered", {"capabilities": ["x"] * 65}),
        ("registered", {"runtime_type": "cl\x1baude"}),
        ("request", {"from_agent": "too@many@parts"}),
        ("request", {"to_agent": "invalid-address"}),
        ("request", {"timeout_secs": 0}),
        ("request", {"timeout_secs": True}),
        ("request", {"request_id": ""}),
        ("response", {"result": {"success": "yes", "output": "", "exit_code": 0}}),
        ("heartbeat", {"status": None}),
        ("heartbeat", {"event_type": "io.cis.agent.unheard"}),
        ("heartbeat", {"event_type": ["io.cis.agent.heartbeat"]}),
    ],
)
def test_what_breaks_a_bound_is_refused_with_its_place(name: str, change: dict[str, Any]) -> None:
    with pytest.raises(TaskRefused) as refused:
        read_event({**SPECIFIED[name], **change})
    assert refused.value.code is FederationCode.INVALID_PAYLOAD
    assert next(iter(change)) in str(refused.value)


def test_addresses_and_names_are_checked_and_folded() -> None:
    address = AgentAddress.parse("Worker-1@Kitchen.local")
    assert (str(address), address.node) == ("worker-1@kitchen.local", "kitchen.local")
    for wrong in ("invalid-address", "too@many@parts", "@kitchen", "a@", "a@-b", "a@b..c", "a@b/c", "ä@b", "a@b\n"):
        with pytest.raises(SubletError) as refused:
            AgentAddress.parse(wrong)
        assert refused.value.code is LocalCode.INVALID_ARGUMENT
    for wrong in ("Team", "a b", "-a", ""):
        with pytest.raises(SubletError):
            namespace(wrong)
    kitchen = node_name("kitchen.local")
    assert federation_room(namespace("team-alpha"), kitchen) == "!agent-federation-team-alpha:kitchen.local"
    assert broadcast_room(kitchen) == "!agent-broadcast:kitchen.local"
    one, other = default_node_name("Küche.lan", PUBLIC), default_node_name("Küche.lan", bytes(OTHER.verify_key))
    assert one != other
    assert one.startswith("k-che-")
    assert default_node_name("!!!", PUBLIC).startswith("node-")


def envelope(**changes: Any) -> Envelope:
    fields: dict[str, Any] = {
        "event_id": "$1",
        "room_id": "!agent-federation-default:kitchen.local",
        "sender": "@node:living.local",
        "events": (read_event({**SPECIFIED["heartbeat"], "node_id": "living.local"}),),
        "origin": node_name("living.local"),
        "at_ms": int(NOW * 1000),
        "node": node_id(PUBLIC),
        "recipient": RECIPIENT,
    }
    return Envelope(**fields | changes)


def test_an_envelope_comes_as_it_was_sent_and_holds_what_the_specification_says() -> None:
    fraction = AgentMessage.model_validate({**SPECIFIED["message"], "payload": {"percent": 0.5}})
    sent = envelope(
        events=(fraction,),
        answers="$0",
        chain=Chain(("a@node-aaaaaaaaaaaaaaaa",), "lse_1", 5),
        sender="@a:living.local",
    )
    raw = seal(sent, KEY)
    assert read_envelope(raw).verified(PUBLIC, recipient=RECIPIENT, now=NOW) == sent
    document = json.loads(raw)
    assert document["content"]["payload"] == {"percent": 0.5}
    assert set(document["signatures"]) == {"living.local"}
    assert set(document["hashes"]) == {"sha256"}
    many = envelope(events=tuple(envelope().events[0] for _ in range(3)))
    assert len(read_envelope(seal(many, KEY)).verified(PUBLIC, recipient=RECIPIENT, now=NOW).events) == 3


@pytest.mark.parametrize(
    "path",
    [
        ("event_id",),
        ("room_id",),
        ("sender",),
        ("type",),
        ("content", "status"),
        ("origin_server_ts",),
        ("hashes", "sha256"),
        ("sublet", "node"),
        ("signatures", "living.local", "ed25519:0"),
    ],
)
def test_each_field_is_signed(path: tuple[str, ...]) -> None:
    document = json.loads(seal(envelope(), KEY))
    place = document
    for name in path[:-1]:
        place = place[name]
    was = place[path[-1]]
    place[path[-1]] = was + 1 if isinstance(was, int) else was[:-1] + ("a" if was[-1] != "a" else "b")
    with pytest.raises(TaskRefused):
        read_envelope(json.dumps(document).encode()).verified(PUBLIC, recipient=RECIPIENT, now=NOW)


def test_an_envelope_is_for_one_recipient_one_key_and_one_time() -> None:
    signed = read_envelope(seal(envelope(), KEY))
    for key, recipient, now, reason in (
        (bytes(OTHER.verify_key), RECIPIENT, NOW, "signature"),
        (PUBLIC, fingerprint(PUBLIC), NOW, "recipient"),
        (PUBLIC, RECIPIENT, NOW + 301, "clock"),
        (PUBLIC, RECIPIENT, NOW - 301, "clock"),
    ):
        with pytest.raises(TaskRefused) as refused:
            signed.verified(key, recipient=recipient, now=now)
        assert refused.value.reason == reason


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"event_id": "$1"}',
        b"\xff",
        b"[" * 5000,
        b"{" + b" " * MAX_ENVELOPE_BYTES + b"}",
        seal(envelope(), KEY).replace(b'"sublet"', b'"nobody"'),
    ],
)
def test_what_is_no_envelope_is_refused_unread(raw: bytes) -> None:
    with pytest.raises(TaskRefused):
        read_envelope(raw)


def test_a_batch_has_a_bound_and_one_type() -> None:
    beat, up = envelope().events[0], read_event({**SPECIFIED["registered"], "node_id": "living.local"})
    for events in ((beat, up), (beat,) * (MAX_EVENTS + 1)):
        with pytest.raises(TaskRefused):
            read_envelope(seal(envelope(events=events), KEY)).verified(PUBLIC, recipient=RECIPIENT, now=NOW)


def test_the_page_of_a_node_is_signed_by_the_pinned_key() -> None:
    page = ServerPage(node_name("living.local"), PUBLIC, int(NOW * 1000) + 1000, ("default",))
    raw = seal_server(page, KEY)
    assert read_server(raw, PUBLIC, now=NOW) == page
    for wrong, key, now in (
        (raw.replace(b"living", b"livinh"), PUBLIC, NOW),
        (raw, bytes(OTHER.verify_key), NOW),
        (raw, PUBLIC, NOW + 2),
        (seal_server(page, OTHER), PUBLIC, NOW),
    ):
        with pytest.raises(TaskRefused):
            read_server(wrong, key, now=now)


@pytest.mark.parametrize("number", ["1" + 400 * "0", str(1 << 53), "-1", "1.5", "true"])
def test_a_time_that_is_no_number_of_milliseconds_is_refused_and_breaks_nothing(number: str) -> None:
    raw = seal(envelope(), KEY)
    told = raw.replace(b'"origin_server_ts":%d' % envelope().at_ms, b'"origin_server_ts":%s' % number.encode())
    assert told != raw
    with pytest.raises(TaskRefused, match="origin_server_ts"):
        read_envelope(told).verified(PUBLIC, recipient=RECIPIENT, now=NOW)
    page = seal_server(ServerPage(node_name("kitchen.local"), PUBLIC, 5, ("default",)), KEY)
    with pytest.raises(TaskRefused, match="not valid"):
        read_server(page.replace(b'"valid_until_ts":5', b'"valid_until_ts":%s' % number.encode()), PUBLIC, now=NOW)


def test_what_another_version_wrote_is_refused_and_says_so() -> None:
    raw = seal(envelope(), KEY).replace(b'"wire":1', b'"wire":2')
    with pytest.raises(TaskRefused, match="another version"):
        read_envelope(raw)
    page = seal_server(ServerPage(node_name("kitchen.local"), PUBLIC, int(2e12), ("default",)), KEY)
    with pytest.raises(TaskRefused, match="another version"):
        read_server(page.replace(b'"wire":1', b'"wire":2'), PUBLIC, now=NOW)


def test_failures_are_answered_by_the_five_codes_with_advice() -> None:
    assert set(ADVICE) == set(FederationCode)
    failed = failure_result(FederationCode.AGENT_BUSY, "busy", "full", current_task="task-123")
    assert (failed.success, failed.exit_code) == (False, -1)
    assert failed.metadata == {"error_code": "AGENT_BUSY", "reason": "full", "current_task": "task-123"}
    assert code_of(SubletError(LocalCode.NOT_FOUND, "")) is FederationCode.AGENT_NOT_FOUND
    assert code_of(SubletError(ErrorCode.DECLINED, "")) is FederationCode.AGENT_BUSY
    assert code_of(SubletError(ErrorCode.TASK_FAILED, "")) is None


def test_states_go_as_the_table_says() -> None:
    state = AgentStatus.INITIAL
    for happens, then in (
        (Happens.REGISTER, AgentStatus.IDLE),
        (Happens.START, AgentStatus.BUSY),
        (Happens.FAIL, AgentStatus.ERROR),
        (Happens.RECOVER, AgentStatus.IDLE),
        (Happens.START, AgentStatus.BUSY),
        (Happens.COMPLETE, AgentStatus.IDLE),
        (Happens.STOP, AgentStatus.SHUTDOWN),
    ):
        state = step(state, happens)
        assert state is then
    with pytest.raises(NoSuchStep):
        step(AgentStatus.SHUTDOWN, Happens.REGISTER)


def test_retries_are_those_of_the_specification_with_jitter() -> None:
    assert [*DEFAULT_RETRY_POLICY.pauses(lambda: 1.0)] == [0.1, 0.2, 0.4]
    assert [*DEFAULT_RETRY_POLICY.pauses(lambda: 0.0)] == [0.05, 0.1, 0.2]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=5))
def test_what_is_signed_has_the_form_of_rfc_8785_by_whichever_way(value: dict[str, JsonValue]) -> None:
    def by(form: Callable[[Any], bytes]) -> bytes | None:
        try:
            return form(value)
        except ValueError:
            return None

    wanted = by(rfc8785.dumps)
    assert by(wire._canonical) == wanted
    assert by(lambda one: wire._joined(wire._parts(one))) == wanted


@pytest.mark.parametrize("text", ["\u007f", '\b\f\n\r\t\x00\x1f"\\/', "a\u2028b", "\ue000", "\U0001f600"])
def test_texts_and_keys_beyond_letters_have_that_form_too(text: str) -> None:
    values: list[dict[str, JsonValue]] = [{text: text}, {"\ue000": 1, "\U0001f600": 2, text: 3}]
    for value in values:
        assert wire._canonical(value) == rfc8785.dumps(value)
