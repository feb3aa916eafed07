"""One base64 text per byte string."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.encoding import b64, unb64


@given(st.binary(min_size=0, max_size=100))
def test_what_is_encoded_comes_back(raw: bytes) -> None:
    assert unb64(b64(raw), len(raw)) == raw
    assert unb64(b64(raw), len(raw) + 1) is None


@pytest.mark.parametrize("text", ["AB==", "AA", "AA==\n", "A_==", " AA==", "AA==AA==", "é", ""])
def test_another_text_for_the_same_bytes_is_none(text: str) -> None:
    assert unb64(text, 1) is None
