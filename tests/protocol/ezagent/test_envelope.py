"""The envelope, byte for byte as the vectors have it, and what is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from sublet.protocol.ezagent.envelope import MAX_PAYLOAD_BYTES, Envelope, seal, unpack, verify
from sublet.protocol.ezagent.errors import Refused

VECTORS = Path(__file__).parent / "vectors"
CASES = json.loads((VECTORS / "envelope-vectors.json").read_text())["vectors"]
ALICE = SigningKey(base64.b64decode(json.loads((VECTORS / "keys" / "alice.json").read_text())["private_key_raw"]))
DOC = "ezagent/01957a3b-0000-7000-8000-000000000005/config"


@pytest.mark.parametrize("case", CASES)
def test_envelopes_are_those_of_the_vectors(case: dict[str, object]) -> None:
    expected = case["bus_spec_appendix_A"]
    assert isinstance(expected, dict)
    timestamp = case["timestamp"]
    assert isinstance(timestamp, int)
    payload = bytes.fromhex(str(case["payload_hex"]))
    made = seal(ALICE, str(case["signer_id"]), str(case["doc_id"]), timestamp, payload)
    assert made.raw.hex() == expected["envelope_hex"]
    read = unpack(bytes.fromhex(expected["envelope_hex"]))
    assert read == made
    verify(read, (ALICE.verify_key,))


@pytest.mark.parametrize("layout", ["reference_code_envelope_rs", "literal_reading_of_bus_spec_4_4_2_concat"])
@pytest.mark.parametrize("case", CASES)
def test_the_other_layouts_are_refused(case: dict[str, dict[str, str]], layout: str) -> None:
    other = case[layout]
    with pytest.raises(Refused):
        unpack(bytes.fromhex(other["signed_bytes_hex"] + other["signature_hex"]))


def made(payload: bytes = b"\0\0") -> Envelope:
    return seal(ALICE, "@alice:a.example", DOC, 1, payload)


@given(st.integers(0, 200), st.integers(0, 7))
def test_no_bit_can_change(place: int, bit: int) -> None:
    raw = bytearray(made(b"x" * 40).raw)
    raw[place % len(raw)] ^= 1 << bit
    with pytest.raises(Refused):
        verify(unpack(bytes(raw)), (ALICE.verify_key,))


def test_only_the_signers_keys_and_those_of_its_devices_fit() -> None:
    other = SigningKey(b"\2" * 32)
    verify(made(), (other.verify_key, ALICE.verify_key))
    for keys in ((), (other.verify_key,)):
        with pytest.raises(Refused):
            verify(made(), keys)


def test_a_payload_has_a_bound() -> None:
    with pytest.raises(Refused):
        seal(ALICE, "@alice:a.example", DOC, 1, b"x" * (MAX_PAYLOAD_BYTES + 1))


def test_the_engine_itself_is_not_accepted_from_the_wire() -> None:
    with pytest.raises(Refused):
        unpack(seal(ALICE, "@system:local", DOC, 1, b"\0\0").raw)
