"""Signed messages (DESIGN 9.9): forged, foreign, stale, replayed or changed ones are refused, honest ones arrive."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from copy import deepcopy
from typing import cast

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from sublet.protocol.canonical import JsonValue, canonical_json
from sublet.protocol.codec import AnyMessage, encode
from sublet.protocol.errors import ErrorCode, RemoteProtocolError
from sublet.protocol.ids import fingerprint
from sublet.protocol.messages import Error
from sublet.protocol.signing import AWCP_DOMAIN, MAX_CLOCK_SKEW_SECONDS, sign_message, verify_message
from support.awcp_strategies import any_json, messages
from support.protobuf import through_struct

JsonObject = dict[str, JsonValue]

ALICE, BOB, MALLORY = (SigningKey(bytes([seed]) * 32) for seed in (1, 2, 3))
ALICE_KEY = bytes(ALICE.verify_key)
BOB_FINGERPRINT = fingerprint(bytes(BOB.verify_key))
NOW = 1_900_000_000
MESSAGE = Error(delegation_id="dlg_1", code=ErrorCode.CANCELLED, message="stop", hint="")


class Memory:
    """Remembers every nonce."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int]] = set()

    def first_seen(self, nonce: str, at: int) -> bool:
        new = (nonce, at) not in self.seen
        self.seen.add((nonce, at))
        return new


def signed(message: AnyMessage = MESSAGE, *, key: SigningKey = ALICE, at: int = NOW) -> JsonObject:
    return encode(sign_message(message, key, recipient=BOB_FINGERPRINT, nonce="n-1", at=at))


def verify(body: JsonObject, *, recipient: str = BOB_FINGERPRINT, now: int = NOW, memory: Memory | None = None) -> None:
    verify_message(body, signer=ALICE_KEY, recipient=recipient, now=now, nonces=memory)


def refused(body: JsonObject, *, recipient: str = BOB_FINGERPRINT, now: int = NOW, memory: Memory | None = None) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        verify(body, recipient=recipient, now=now, memory=memory)
    assert caught.value.code is ErrorCode.AUTH_FAILED
    assert caught.value.hint
    return caught.value.message


def signature_of(body: JsonObject) -> JsonObject:
    return cast("JsonObject", cast("JsonObject", body["sublet"])["signature"])


def with_signature(body: JsonObject, **fields: JsonValue) -> JsonObject:
    copy = deepcopy(body)
    signature_of(copy).update(fields)
    return copy


def paths(value: JsonValue, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to every value inside ``value``, containers included."""
    items: list[tuple[str | int, JsonValue]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, item in items:
        yield (*path, key)
        yield from paths(item, (*path, key))


def parent_of(body: JsonObject, path: tuple[str | int, ...]) -> dict[str | int, JsonValue]:
    target: JsonValue = body
    for part in path[:-1]:
        target = cast("dict[str | int, JsonValue]", target)[part]
    return cast("dict[str | int, JsonValue]", target)


def same_value(left: JsonValue, right: JsonValue) -> bool:
    """Tell whether both have the same canonical bytes; what has none differs from everything."""
    try:
        return canonical_json(left) == canonical_json(right)
    except ValueError:
        return False


@given(messages)
def test_an_honest_message_is_accepted(message: AnyMessage) -> None:
    verify(signed(message), memory=Memory())


@given(messages)
def test_it_is_still_accepted_after_the_way_through_protobuf(message: AnyMessage) -> None:
    verify(through_struct(signed(message)), memory=Memory())


@given(messages)
def test_signing_changes_nothing_but_the_signature(message: AnyMessage) -> None:
    again = sign_message(message, ALICE, recipient=BOB_FINGERPRINT, nonce="n-1", at=NOW)
    assert again.model_copy(update={"sublet": message.sublet}) == message
    assert again.sublet.model_copy(update={"signature": None}) == message.sublet
    assert message.sublet.signature is None


@given(messages, st.data())
def test_any_changed_value_breaks_the_signature(message: AnyMessage, data: st.DataObject) -> None:
    body = signed(message)
    path = data.draw(st.sampled_from(list(paths(body))))
    replacement = data.draw(any_json)
    holder = parent_of(body, path)
    assume(not same_value(holder[path[-1]], replacement))
    holder[path[-1]] = replacement
    refused(body)


@given(messages, st.data())
def test_any_removed_value_breaks_the_signature(message: AnyMessage, data: st.DataObject) -> None:
    body = signed(message)
    path = data.draw(st.sampled_from(list(paths(body))))
    del parent_of(body, path)[path[-1]]
    refused(body)


@given(messages, st.data())
def test_any_added_field_breaks_the_signature(message: AnyMessage, data: st.DataObject) -> None:
    body = signed(message)
    inside = [(), *(path for path in paths(body) if isinstance(parent_of(body, path)[path[-1]], dict))]
    holder = parent_of(body, (*data.draw(st.sampled_from(inside)), "x-new"))
    holder["x-new"] = data.draw(any_json)
    refused(body)


def test_a_forged_signature_is_refused() -> None:
    forged = base64.b64encode(MALLORY.sign(b"anything").signature).decode()
    assert "does not fit" in refused(with_signature(signed(), value=forged))


def test_another_signer_is_refused_naming_both_keys() -> None:
    reason = refused(signed(key=MALLORY))
    assert fingerprint(ALICE_KEY) in reason
    assert fingerprint(bytes(MALLORY.verify_key)) in reason


def test_another_signer_under_the_pinned_key_is_refused() -> None:
    pinned = base64.b64encode(ALICE_KEY).decode()
    assert "does not fit" in refused(with_signature(signed(key=MALLORY), key=pinned))


def test_a_message_for_someone_else_is_refused() -> None:
    reason = refused(signed(), recipient=fingerprint(bytes(MALLORY.verify_key)))
    assert "another recipient" in reason


def test_a_message_readdressed_to_us_is_refused() -> None:
    for_mallory = encode(sign_message(MESSAGE, ALICE, recipient="SHA256:x", nonce="n-1", at=NOW))
    assert "does not fit" in refused(with_signature(for_mallory, recipient=BOB_FINGERPRINT))


@pytest.mark.parametrize("age", [MAX_CLOCK_SKEW_SECONDS + 1, -MAX_CLOCK_SKEW_SECONDS - 1, 10**9])
def test_a_stale_or_early_message_is_refused(age: int) -> None:
    assert "old" in refused(signed(at=NOW - age))


@pytest.mark.parametrize("age", [MAX_CLOCK_SKEW_SECONDS, 0, -MAX_CLOCK_SKEW_SECONDS])
def test_clocks_may_differ_a_little(age: int) -> None:
    verify(signed(at=NOW - age))


def test_a_message_made_young_again_is_refused() -> None:
    assert "does not fit" in refused(with_signature(signed(at=NOW - 10_000), at=NOW))


def test_a_replay_is_refused() -> None:
    memory = Memory()
    verify(signed(), memory=memory)
    assert "before" in refused(signed(), memory=memory)


def test_a_replay_with_a_new_nonce_is_refused() -> None:
    memory = Memory()
    verify(signed(), memory=memory)
    assert "does not fit" in refused(with_signature(signed(), nonce="n-2"), memory=memory)


def test_an_answer_may_be_read_again() -> None:
    verify(signed())
    verify(signed())


def test_a_refused_message_leaves_no_nonce_behind() -> None:
    """Otherwise anybody could make us refuse an honest message by sending a broken copy first."""
    memory = Memory()
    refused({**signed(), "message": "changed"}, memory=memory)
    assert not memory.seen
    verify(signed(), memory=memory)


@pytest.mark.parametrize(
    "sublet",
    [None, [], "x", {}, {"signature": None}, {"signature": []}, {"signature": "x"}, {"signature": {}}],
)
def test_an_unsigned_message_is_refused(sublet: JsonValue) -> None:
    refused({**encode(MESSAGE), "sublet": sublet})


def test_a_message_without_the_sublet_object_is_refused() -> None:
    assert "not signed" in refused({key: value for key, value in encode(MESSAGE).items() if key != "sublet"})


@pytest.mark.parametrize("field", ["key", "value", "recipient", "nonce", "at"])
@pytest.mark.parametrize(
    "value", ["", "AA==", "!", "\xe9", "\ud800", None, 0, -1, 0.5, 2**53, 10**30, True, [], {}, "A" * 5000]
)
def test_a_malformed_signature_is_refused(field: str, value: JsonValue) -> None:
    refused(with_signature(signed(), **{field: value}))


@given(any_json)
def test_any_json_is_refused(body: JsonValue) -> None:
    if isinstance(body, dict):
        refused(body)


def test_the_domain_tag_is_signed() -> None:
    """A signature by the same key over the same bytes without the tag, as another protocol would make it, is void."""
    body = signed()
    stripped = with_signature(body, value="")
    elsewhere = ALICE.sign(canonical_json(stripped)).signature
    assert "does not fit" in refused(with_signature(body, value=base64.b64encode(elsewhere).decode()))
    ours = ALICE.sign(AWCP_DOMAIN + b"\n" + canonical_json(stripped)).signature
    verify(with_signature(body, value=base64.b64encode(ours).decode()))


def test_a_message_that_cannot_be_represented_faithfully_is_refused() -> None:
    """Two languages print a fraction in two ways, so it must not be under a signature."""
    refused({**signed(), "x-later": 0.5})
    refused({**signed(), "x-later": 2**60})
