"""What another version says beyond what this one knows: the table of docs/upgrading.md, row by row.

Unknown fields are ignored where that is safe; what somebody relies on is refused.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

import pytest
from a2a.types import AgentCapabilities, AgentCard, AgentExtension
from google.protobuf.struct_pb2 import Struct
from nacl.signing import SigningKey
from pydantic import TypeAdapter, ValidationError

from sublet.a2a_client.answers import AnswerReader
from sublet.a2a_wire.card import offered_agents, offered_bus
from sublet.daemon.api.delegation_views import ErrorView
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.ports.given_to_a2a import PairRequest
from sublet.daemon.ports.peer_link import BUS_WIRE, BusAddress
from sublet.daemon.working.acceptance import choose_transport
from sublet.protocol.canonical import JsonValue
from sublet.protocol.codec import decode, encode
from sublet.protocol.demands import unmet
from sublet.protocol.errors import ErrorCode, RemoteProtocolError, SubletError
from sublet.protocol.ezagent.envelope import seal, unpack
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ids import fingerprint
from sublet.protocol.lease_terms import LeaseTerms
from sublet.protocol.messages import AWCP_URI, Error, Invite, Progress, SandboxProfile
from sublet.protocol.signing import sign_message, verify_message
from sublet.workspace.archive.wire import Frame, Frames, MalformedFrame

Json = dict[str, JsonValue]

ID = "dlg_1"
MESSAGES: Mapping[str, Json] = {
    "INVITE": {
        "version": "1",
        "task": {"description": "d", "prompt": "p"},
        "lease": {"ttl_seconds": 60, "access_mode": "rw"},
        "workspace": {"export_name": "w"},
        "sublet": {"agent": "shell"},
    },
    "ACCEPT": {"remote_mount": {"mount_point": "/m"}, "sublet": {"renewable": True}},
    "START": {
        "lease": {"expires_at": "2030-01-01T00:00:00Z", "access_mode": "ro"},
        "mount": {"endpoint": {"host": "h", "port": 22, "user": "u"}, "export_locator": "/w", "credential": "c"},
        "sublet": {"generation": 2},
    },
    "DONE": {"final_summary": "s", "sublet": {"exit_code": 0}},
    "ERROR": {"code": "EXPIRED", "message": "m", "sublet": {"exit_code": 1}},
}
ALICE, BOB = SigningKey(b"a" * 32), SigningKey(b"b" * 32)
TO_BOB = fingerprint(bytes(BOB.verify_key))
NOW = 1_800_000_000


def message(kind: str) -> Json:
    """Return a message of that type."""
    return {"type": kind, "delegation_id": ID, **deepcopy(MESSAGES[kind])}


def with_unknown(value: JsonValue) -> JsonValue:
    """Return JSON with a field that nobody knows in each of its objects."""
    if not isinstance(value, dict):
        return value
    return {**{name: with_unknown(one) for name, one in value.items()}, "from_the_future": [{"x": 1.5}]}


@pytest.mark.parametrize("kind", MESSAGES)
def test_messages_are_read_without_what_is_not_known(kind: str) -> None:
    assert decode(with_unknown(message(kind))) == decode(message(kind))


@pytest.mark.parametrize("kind", MESSAGES)
def test_what_is_not_known_is_signed_all_the_same(kind: str) -> None:
    signed = sign_message(decode(message(kind)), ALICE, recipient=TO_BOB, nonce="n", at=NOW)
    body = encode(signed)
    verify_message(body, signer=bytes(ALICE.verify_key), recipient=TO_BOB, now=NOW, nonces=None)
    body["added_on_the_way"] = 1
    with pytest.raises(RemoteProtocolError) as refused:
        verify_message(body, signer=bytes(ALICE.verify_key), recipient=TO_BOB, now=NOW, nonces=None)
    assert refused.value.code is ErrorCode.AUTH_FAILED


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("INVITE", ["version"], "2"),
        ("INVITE", ["type"], "OFFER"),
        ("INVITE", ["lease", "access_mode"], "append"),
        ("INVITE", ["sublet", "result_mode"], "streamed"),
        ("START", ["lease", "access_mode"], "append"),
        ("START", ["sublet", "data_path"], "pigeon"),
    ],
)
def test_a_word_that_somebody_relies_on_is_refused(kind: str, path: list[str], value: str) -> None:
    body = message(kind)
    inner = body
    for name in path[:-1]:
        inner = cast("Json", inner[name])
    inner[path[-1]] = value
    with pytest.raises(RemoteProtocolError) as refused:
        decode(body)
    assert refused.value.code is ErrorCode.DECLINED


def test_a_code_that_is_not_known_is_a_failure_and_shown() -> None:
    told = decode({**message("ERROR"), "code": "NEW_CODE"})
    assert isinstance(told, Error)
    assert (told.code, told.message) == (ErrorCode.TASK_FAILED, "NEW_CODE: m")


def test_a_demand_that_is_not_known_is_not_met() -> None:
    profile = SandboxProfile(cwd_only=True, allow_network=False, allow_exec=True)
    assert unmet(["cwd_only", "no_clipboard"], profile, {"cwd_only", "memory"}) == ["no_clipboard"]


def test_transports_that_are_not_known_are_passed_over() -> None:
    def invite(*transports: str) -> Invite:
        body = message("INVITE")
        body["requirements"] = {"transport": transports[0]}
        body["sublet"] = {"transports": list(transports)}
        found = decode(body)
        assert isinstance(found, Invite)
        return found

    assert choose_transport(invite("teleport", "archive"), ["sshfs", "archive"], lambda _: None) == "archive"
    with pytest.raises(SubletError) as refused:
        choose_transport(invite("teleport"), ["sshfs", "archive"], lambda _: None)
    assert refused.value.code is ErrorCode.DEP_MISSING


def test_progress_that_can_not_be_read_is_none() -> None:
    def read(said: Json) -> Progress | None:
        metadata = Struct()
        metadata.update({AWCP_URI: said})
        return AnswerReader(ID, bytes(ALICE.verify_key), TO_BOB).progress(metadata)

    said: Json = {"type": "PROGRESS", "delegation_id": ID, "phase": "running", "text": "t"}
    assert read(cast("Json", with_unknown(said))) == Progress(delegation_id=ID, phase="running", text="t")
    assert read({**said, "phase": "dreaming"}) is None


def card(sublet: dict[str, Any]) -> AgentCard:
    """Return a card that says ``sublet`` in its parameters."""
    extension = AgentExtension(uri=AWCP_URI)
    extension.params.update({"version": "1", "agents": [{"id": "shell", "mood": "good"}], "sublet": sublet, "new": {}})
    return AgentCard(capabilities=AgentCapabilities(extensions=[extension]))


@pytest.mark.parametrize(
    ("sublet", "door"),
    [
        ({}, None),
        ({"version": "0.1.0", "bus_port": 7447, "bus_tls": True}, BusAddress(7447, 1, "0.1.0")),
        ({"version": "0.2", "bus": {"port": 7447, "wire": BUS_WIRE, "x": 1}}, BusAddress(7447, BUS_WIRE, "0.2")),
        ({"version": "9", "bus": {"port": 7447, "wire": 99}, "bus_port": 1}, BusAddress(7447, 99, "9")),
        ({"bus": {"port": 0, "wire": 2}}, None),
        ({"bus": {"port": 7447}}, None),
        ({"bus": "elsewhere"}, None),
    ],
)
def test_a_card_says_where_the_bus_is_and_of_which_form(sublet: dict[str, Any], door: BusAddress | None) -> None:
    assert offered_bus(card(sublet)) == door
    assert [agent.id for agent in offered_agents(card(sublet))] == ["shell"]


def test_the_version_in_a_card_is_one_short_line() -> None:
    door = offered_bus(card({"version": "a\x1b[31m\nb" + "c" * 99, "bus": {"port": 1, "wire": 3}}))
    assert door is not None
    assert len(door.version) <= 40
    assert door.version.isprintable()


def test_a_request_to_pair_is_read_without_what_is_not_known() -> None:
    said: dict[str, Any] = dict.fromkeys(("token_id", "node_id", "public_key", "name_hint", "nonce", "proof"), "x")
    said |= {"a2a_url": None, "tls_certificate": None}
    adapter = TypeAdapter(PairRequest)
    known, more = (adapter.validate_json(json.dumps(one), strict=True) for one in (said, {**said, "new": 1}))
    assert more == known


def test_a_frame_of_a_kind_that_is_not_known_ends_a_transfer() -> None:
    frames = Frames()
    frames.add(struct.pack(">BI", max(Frame) + 1, 0))
    with pytest.raises(MalformedFrame):
        frames.next()


def test_an_update_of_a_room_in_another_envelope_is_refused() -> None:
    raw = seal(ALICE, "@human:node-a", "ezagent/01957a3b-0000-7000-8000-000000000005/config", NOW, b"x").raw
    assert unpack(raw).payload == b"x"
    with pytest.raises(Refused, match="envelope version 2"):
        unpack(b"\2" + raw[1:])


def test_commands_ignore_in_answers_what_the_daemon_refuses_in_requests() -> None:
    assert ErrorView.model_validate({"code": "X", "message": "m", "new": 1}) == ErrorView(code="X", message="m")
    with pytest.raises(ValidationError, match="new"):
        CreateDelegation.model_validate({"workspace_dir": "/w", "peer": "bob", "prompt": "p", "new": 1})


def test_an_executor_that_knows_no_terms_takes_the_invite_and_one_that_does_reads_no_term_where_none_is() -> None:
    """Terms are told and not asked for: the delegator's own view holds the executor to them."""
    told = Invite.model_validate(
        {"delegation_id": ID, **MESSAGES["INVITE"], "sublet": {"terms": {"no_delete": True, "a_later_term": 1}}}
    )
    assert told.sublet.terms == LeaseTerms(no_delete=True)
    assert Invite.model_validate({"delegation_id": ID, **MESSAGES["INVITE"]}).sublet.terms == LeaseTerms()
