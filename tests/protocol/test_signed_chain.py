"""A chain beside a plain message is for that message, that recipient and that moment alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from sublet.protocol.chain import Chain
from sublet.protocol.errors import ErrorCode, RemoteProtocolError
from sublet.protocol.signed_chain import sign_chain, verify_chain

KEY = SigningKey(b"\1" * 32)
CHAIN = Chain(("coder@node-a", "team@node-b"), "lse_1", 30)
US = "SHA256:" + "A" * 43
NOW = 1_800_000_000


class Nonces:
    def __init__(self) -> None:
        self.seen: set[str] = set()

    def first_seen(self, nonce: str, at: int) -> bool:
        new = nonce not in self.seen
        self.seen.add(nonce)
        return new


def signed(chain: Chain = CHAIN) -> dict[str, Any]:
    return sign_chain(chain, "do it", KEY, recipient=US, at=NOW)


def verified(raw: object, text: str = "do it", *, recipient: str = US, now: int = NOW) -> Chain:
    return verify_chain(raw, text, recipient=recipient, now=now, nonces=Nonces())


def test_what_was_signed_is_read() -> None:
    assert verified(signed()) == CHAIN


@pytest.mark.parametrize(
    "change",
    [
        {"text": "do something else"},
        {"recipient": "SHA256:" + "B" * 43},
        {"now": NOW + 301},
        {"now": NOW - 301},
    ],
)
def test_it_counts_for_nothing_else(change: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError) as no:
        verified(signed(), **change)
    assert no.value.code is ErrorCode.AUTH_FAILED


def test_it_counts_once() -> None:
    raw, nonces = signed(), Nonces()
    verify_chain(raw, "do it", recipient=US, now=NOW, nonces=nonces)
    with pytest.raises(RemoteProtocolError, match="before"):
        verify_chain(raw, "do it", recipient=US, now=NOW, nonces=nonces)


@given(st.sampled_from(["execution_chain", "lease_id", "ttl"]), st.data())
def test_any_change_is_noticed(field: str, data: st.DataObject) -> None:
    raw = copy.deepcopy(signed())
    values: dict[str, st.SearchStrategy[object]] = {
        "execution_chain": st.lists(st.text(max_size=20), max_size=3),
        "lease_id": st.text(max_size=10),
        "ttl": st.one_of(st.none(), st.integers(-5, 100)),
    }
    raw["chain"][field] = data.draw(values[field])
    if raw == signed():
        return
    try:
        found = verified(raw)
    except RemoteProtocolError:
        return
    assert found == CHAIN


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["chain", "signature", "x"]), inner),
    )
)
def test_nothing_that_is_no_chain_is_taken_for_one(raw: object) -> None:
    with pytest.raises(RemoteProtocolError):
        verified(raw)


def test_a_person_sends_none() -> None:
    with pytest.raises(ValueError, match="nobody"):
        signed(Chain())
