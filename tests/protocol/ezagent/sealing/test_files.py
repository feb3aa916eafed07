"""Sealed files: one address for one file, lengths in steps, and nothing opens but with the key and unchanged."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.ezagent.blob import MAX_BLOB_BYTES, MAX_KEPT_BYTES
from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.sealing.files import file_key, open_file, seal_file, sealed_size

EPOCH, LATER = b"\1" * 32, b"\2" * 32
FROZEN = "b364661ff49c598d0cc28fd5e4f560a3e573c861f85fff04061e0d1a57b37201"


@given(st.binary(max_size=3_000))
def test_what_was_sealed_comes_back_and_has_one_address(data: bytes) -> None:
    key = file_key(EPOCH, data)
    raw = seal_file(key, data)
    assert open_file(key, raw) == data
    assert raw == seal_file(file_key(EPOCH, data), data)
    assert len(raw) == sealed_size(len(data))
    assert data == b"" or data not in raw or len(data) < 8


def test_lengths_are_told_in_steps_alone() -> None:
    assert len({sealed_size(size) for size in range(4_096)}) <= 17
    assert sealed_size(100_001) == sealed_size(100_500)


def test_the_longest_file_fits_where_files_are_kept() -> None:
    assert sealed_size(MAX_BLOB_BYTES) <= MAX_KEPT_BYTES
    with pytest.raises(Refused) as refused:
        seal_file(EPOCH, bytes(MAX_BLOB_BYTES + 1))
    assert refused.value.refusal is Refusal.OVERSIZED
    with pytest.raises(Refused) as refused:
        open_file(EPOCH, bytes(MAX_KEPT_BYTES + 1))
    assert refused.value.refusal is Refusal.OVERSIZED


def test_another_epoch_and_another_file_have_other_keys() -> None:
    assert len({file_key(EPOCH, b"x"), file_key(LATER, b"x"), file_key(EPOCH, b"y")}) == 3


def test_a_file_opens_with_its_own_key_alone_and_whole() -> None:
    key = file_key(EPOCH, b"words")
    raw = seal_file(key, b"words")
    for other in (file_key(LATER, b"words"), b"", b"\0" * 31):
        with pytest.raises(Refused):
            open_file(other, raw)
    for at in range(len(raw)):
        changed = bytearray(raw)
        changed[at] ^= 1
        with pytest.raises(Refused):
            open_file(key, bytes(changed))
    for end in (0, 1, 33, 34, len(raw) - 1):
        with pytest.raises(Refused):
            open_file(key, raw[:end])


def test_the_bytes_are_those_of_the_first_version() -> None:
    raw = seal_file(file_key(EPOCH, b"the planted words"), b"the planted words")
    assert hashlib.sha256(raw).hexdigest() == FROZEN
