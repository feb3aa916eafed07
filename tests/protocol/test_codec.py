"""Messages of AWCP 4: every field survives, what is malformed is refused, nothing else ever comes out of the codec."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from copy import deepcopy
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.canonical import MAX_DEPTH, JsonValue
from sublet.protocol.codec import MAX_MESSAGE_BYTES, AnyMessage, decode, encode, narrow_bounded
from sublet.protocol.errors import ErrorCode, RemoteProtocolError
from sublet.protocol.messages import Accept, Done, Error, Invite, Start
from sublet.protocol.text import clean_line
from support.awcp_strategies import any_json, messages
from support.protobuf import through_struct

JsonObject = dict[str, JsonValue]

ID = "dlg_0123456789abcdef0123456789abcdef"
INVITE: JsonObject = {
    "version": "1",
    "type": "INVITE",
    "delegation_id": ID,
    "task": {"description": "Mend the tests", "prompt": "Run them, then mend what fails."},
    "lease": {"ttl_seconds": 600, "access_mode": "rw"},
    "workspace": {"export_name": f"awcp/{ID}"},
    "requirements": {"transport": "sshfs"},
}
ACCEPT: JsonObject = {
    "type": "ACCEPT",
    "delegation_id": ID,
    "remote_mount": {"mount_point": "/srv/mounts/1"},
    "remote_constraints": {
        "accepted_access_mode": "ro",
        "max_ttl_seconds": 300,
        "sandbox_profile": {"cwd_only": True, "allow_network": False, "allow_exec": True},
    },
}
START: JsonObject = {
    "type": "START",
    "delegation_id": ID,
    "lease": {"expires_at": "2030-01-01T00:00:00Z", "access_mode": "ro"},
    "mount": {
        "transport": "sshfs",
        "endpoint": {"host": "192.0.2.7", "port": 8622, "user": "lease-1"},
        "export_locator": "/workspace",
        "credential": "a key",
    },
}
DONE: JsonObject = {
    "type": "DONE",
    "delegation_id": ID,
    "final_summary": "All tests pass.",
    "highlights": ["src/app.py"],
    "notes": "Two were wrong.",
}
ERROR: JsonObject = {
    "type": "ERROR",
    "delegation_id": ID,
    "code": "DEP_MISSING",
    "message": "sshfs is not installed",
    "hint": "apt install sshfs",
}
SPEC = [pytest.param(body, id=str(body["type"])) for body in (INVITE, ACCEPT, START, DONE, ERROR)]
REQUIRED = [
    pytest.param(body, path, id=f"{body['type']} {'.'.join(path)}")
    for body, paths in (
        (INVITE, "version type delegation_id task task.description task.prompt lease lease.ttl_seconds"),
        (INVITE, "lease.access_mode workspace workspace.export_name"),
        (ACCEPT, "type delegation_id remote_mount remote_mount.mount_point"),
        (START, "type delegation_id lease lease.expires_at lease.access_mode mount mount.endpoint mount.endpoint.host"),
        (START, "mount.endpoint.port mount.endpoint.user mount.export_locator mount.credential"),
        (DONE, "type delegation_id final_summary"),
        (ERROR, "type delegation_id code message"),
    )
    for path in (name.split(".") for name in paths.split())
]


_MALFORMED: list[tuple[JsonObject, str, JsonValue]] = [
    (INVITE, "delegation_id", ""),
    (INVITE, "delegation_id", "../../etc"),
    (INVITE, "delegation_id", "-oProxyCommand=sh"),
    (INVITE, "delegation_id", f"{ID}\n"),
    (INVITE, "delegation_id", f"{ID}\x00"),
    (INVITE, "delegation_id", "x" * 65),
    (INVITE, "delegation_id", 7),
    (INVITE, "lease.ttl_seconds", 0),
    (INVITE, "lease.ttl_seconds", -1),
    (INVITE, "lease.ttl_seconds", 0.5),
    (INVITE, "lease.ttl_seconds", "600"),
    (INVITE, "lease.ttl_seconds", True),
    (INVITE, "lease.ttl_seconds", 10**9),
    (INVITE, "lease.ttl_seconds", 10**400),
    (INVITE, "lease.ttl_seconds", 1e300),
    (INVITE, "lease.ttl_seconds", math.nan),
    (INVITE, "lease.ttl_seconds", math.inf),
    (INVITE, "lease.access_mode", "rwx"),
    (INVITE, "lease.access_mode", "RW"),
    (INVITE, "task", []),
    (INVITE, "task.prompt", None),
    (INVITE, "task.prompt", "x" * 200_001),
    (INVITE, "task.prompt", "\ud800"),
    (INVITE, "task.description", "x" * 501),
    (INVITE, "sublet", {"agent": "../bob"}),
    (INVITE, "sublet", {"agent": "-bob"}),
    (INVITE, "sublet", {"transports": ["sshfs"] * 9}),
    (INVITE, "sublet", "no object"),
    (ACCEPT, "remote_mount.mount_point", ["/"]),
    (ACCEPT, "remote_constraints.max_ttl_seconds", 0),
    (ACCEPT, "remote_constraints.sandbox_profile", {"cwd_only": 1, "allow_network": 0, "allow_exec": 0}),
    (START, "mount.endpoint.port", 0),
    (START, "mount.endpoint.port", 65_536),
    (START, "mount.credential", "x" * 16_385),
    (START, "lease.expires_at", "tomorrow"),
    (START, "lease.expires_at", "2030-01-01T00:00:00"),
    (START, "lease.expires_at", "2030-13-01T00:00:00Z"),
    (START, "lease.expires_at", 1_900_000_000),
    (START, "sublet", {"remaining_seconds": -1}),
    (START, "sublet", {"data_path": "sideways"}),
    (DONE, "highlights", "src/app.py"),
    (DONE, "highlights", ["x"] * 201),
    (DONE, "final_summary", {"text": "x"}),
    (DONE, "sublet", {"exit_code": 2**53}),
    (ERROR, "code", "declined"),
    (ERROR, "code", ""),
    (ERROR, "code", "A" * 65),
    (ERROR, "code", "X\nY"),
    (ERROR, "code", 404),
    (ERROR, "message", "x" * 8_001),
]
MALFORMED = [pytest.param(*row, id=f"{number} {row[1]}") for number, row in enumerate(_MALFORMED)]


def leaves(value: JsonValue, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], JsonValue]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value


def changed(body: JsonObject, path: str, value: JsonValue) -> JsonObject:
    """Return a copy of ``body`` in which the field at the dotted ``path`` is ``value``."""
    copy = deepcopy(body)
    *parents, last = path.split(".")
    target = copy
    for name in parents:
        target = cast("JsonObject", target.setdefault(name, {}))
    target[last] = value
    return copy


def refused(body: JsonValue) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(body)
    assert caught.value.code is ErrorCode.DECLINED
    assert caught.value.hint
    return caught.value


def outcome(body: JsonValue) -> AnyMessage | RemoteProtocolError:
    try:
        return decode(body)
    except RemoteProtocolError as error:
        return error


@pytest.mark.parametrize("body", SPEC)
def test_every_field_of_the_spec_survives(body: JsonObject) -> None:
    sent = encode(decode(body))
    assert dict(leaves(body)).items() <= dict(leaves(sent)).items()


@given(messages)
def test_what_is_encoded_decodes_to_the_same_message(message: AnyMessage) -> None:
    assert decode(encode(message)) == message
    assert decode(json.loads(json.dumps(encode(message)))) == message


@given(messages)
def test_messages_survive_the_way_through_protobuf(message: AnyMessage) -> None:
    assert decode(through_struct(encode(message))) == message


@pytest.mark.parametrize(
    ("body", "kind"), [(INVITE, Invite), (ACCEPT, Accept), (START, Start), (DONE, Done), (ERROR, Error)]
)
def test_the_type_decides_the_class(body: JsonObject, kind: type[AnyMessage]) -> None:
    assert type(decode(body)) is kind


@pytest.mark.parametrize(("body", "path"), REQUIRED)
def test_a_missing_required_field_is_refused(body: JsonObject, path: list[str]) -> None:
    copy = deepcopy(body)
    target = copy
    for name in path[:-1]:
        target = cast("JsonObject", target[name])
    del target[path[-1]]
    refused(copy)


def test_optional_fields_may_be_absent() -> None:
    assert decode({k: v for k, v in INVITE.items() if k != "requirements"}) == decode(INVITE)
    accept = decode({k: v for k, v in ACCEPT.items() if k != "remote_constraints"})
    assert isinstance(accept, Accept)
    assert accept.remote_constraints.accepted_access_mode is None
    done = decode({k: v for k, v in DONE.items() if k not in {"highlights", "notes"}})
    assert isinstance(done, Done)
    assert (done.highlights, done.notes) == ([], "")


@pytest.mark.parametrize("body", SPEC)
def test_unknown_fields_are_ignored_at_every_level(body: JsonObject) -> None:
    def widened(value: JsonValue) -> JsonValue:
        if isinstance(value, list):
            return [widened(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {**{key: widened(item) for key, item in value.items()}, "x-later": {"temperature": 0.5}}

    assert decode(widened({**body, "sublet": {}})) == decode(body)


def test_mount_options_never_arrive() -> None:
    """Options from the wire are handed to nobody (DESIGN 4.3), so the message does not even hold them."""
    start = decode(changed(START, "mount.mount_options", ["-o", "ssh_command=sh"]))
    assert "ssh_command" not in json.dumps(encode(start))


@pytest.mark.parametrize("body", SPEC)
@pytest.mark.parametrize("version", ["2", "", "1.0", 1, 1.0, None, True, {"a": 1}, ["1"], "\x1b[2J\u202e" + "9" * 99])
def test_another_version_is_declined_naming_ours(body: JsonObject, version: JsonValue) -> None:
    error = refused({**body, "version": version})
    assert "'1'" in error.hint
    assert error.message.isprintable()
    assert len(error.message) < 100


@pytest.mark.parametrize("body", SPEC)
def test_our_version_is_accepted_in_every_message(body: JsonObject) -> None:
    assert decode({**body, "version": "1"}) == decode(body)


@pytest.mark.parametrize("body", [None, True, 1, "INVITE", [], [INVITE], {}, {"type": "INVITE", "version": "1"}])
def test_what_is_no_message_is_refused(body: JsonValue) -> None:
    refused(body)


@pytest.mark.parametrize("kind", ["invite", "PROGRESS", "", None, 1, [], {}, "xy" * 500, "\x1b]0;x\x07\n"])
def test_an_unknown_type_is_refused_without_repeating_it_at_length(kind: JsonValue) -> None:
    error = refused({**INVITE, "type": kind})
    assert error.message.isprintable()
    assert len(error.message) < 400


@pytest.mark.parametrize(("body", "path", "value"), MALFORMED)
def test_malformed_fields_are_refused(body: JsonObject, path: str, value: JsonValue) -> None:
    error = refused(changed(body, path, value))
    assert error.message.isprintable()
    assert len(error.message) < 400


def test_whole_floats_are_integers_again() -> None:
    invite = decode(changed(INVITE, "lease.ttl_seconds", 600.0))
    assert isinstance(invite, Invite)
    assert invite.lease.ttl_seconds == 600
    assert type(invite.lease.ttl_seconds) is int


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_of_ours_arrives(code: ErrorCode) -> None:
    error = decode({**ERROR, "code": code.value})
    assert isinstance(error, Error)
    assert error.code is code


def test_a_code_that_is_not_ours_still_says_what_happened() -> None:
    """The spec suggests its codes and does not close the list, so a plain peer's refusal must not get lost."""
    error = decode({**ERROR, "code": "BUSY_2", "message": "x" * 8_000})
    assert isinstance(error, Error)
    assert error.code is ErrorCode.TASK_FAILED
    assert error.message.startswith("BUSY_2: xxx")
    assert len(error.message) == 8_000


def test_a_message_without_a_hint_is_accepted() -> None:
    error = decode({key: value for key, value in ERROR.items() if key != "hint"})
    assert isinstance(error, Error)
    assert error.hint == ""


def nested(depth: int) -> JsonValue:
    value: JsonValue = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [MAX_DEPTH, 100_000])
def test_too_deep_is_refused(depth: int) -> None:
    assert "deeper" in refused({**INVITE, "x-deep": nested(depth)}).message


def test_the_deepest_allowed_unknown_field_is_ignored() -> None:
    assert decode({**INVITE, "x-deep": nested(MAX_DEPTH - 1)}) == decode(INVITE)


def test_size_is_bounded_in_bytes() -> None:
    room = MAX_MESSAGE_BYTES - len(json.dumps({**INVITE, "x": ""}, separators=(",", ":")))
    assert decode({**INVITE, "x": "a" * room}) == decode(INVITE)
    assert "bytes" in refused({**INVITE, "x": "a" * (room + 1)}).message
    assert "bytes" in refused({**INVITE, "x": "\u20ac" * (room // 3 + 1)}).message


@pytest.mark.parametrize("value", ["\ud800", ["\udfff"], {"\ud800": 1}])
def test_lone_surrogates_are_refused_wherever_they_stand(value: JsonValue) -> None:
    assert "Unicode" in refused({**INVITE, "x": value}).message


def assert_sound(result: AnyMessage | RemoteProtocolError) -> None:
    if isinstance(result, RemoteProtocolError):
        assert clean_line(result.message) == result.message
        assert len(result.message) < 400
    else:
        assert decode(encode(result)) == result


@given(any_json)
def test_any_json_is_decoded_or_refused(body: JsonValue) -> None:
    assert_sound(outcome(body))


@given(st.sampled_from([INVITE, ACCEPT, START, DONE, ERROR]), st.data())
def test_any_damage_to_a_message_is_decoded_or_refused(body: JsonObject, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([path for path, _ in leaves(body)]))
    assert_sound(
        outcome(changed(body, ".".join(str(part) for part in path if isinstance(part, str)), data.draw(any_json)))
    )


@given(any_json)
def test_narrow_bounded_gives_json_that_can_be_stored(body: JsonValue) -> None:
    try:
        narrowed = narrow_bounded(body)
    except RemoteProtocolError:
        return
    assert json.loads(json.dumps(narrowed, allow_nan=False).encode()) == narrowed


@given(messages)
def test_messages_are_immutable(message: AnyMessage) -> None:
    with pytest.raises(ValueError, match="frozen"):
        message.delegation_id = "another"


def test_a_credential_is_not_in_the_repr() -> None:
    start = decode(changed(START, "mount.credential", "hunter2"))
    assert "hunter2" not in repr(start)
    assert "hunter2" not in str(start)


def test_the_credential_of_start_is_read() -> None:
    start = decode(changed(START, "mount.credential", "hunter2"))
    assert isinstance(start, Start)
    assert start.mount.credential == "hunter2"
