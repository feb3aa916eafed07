"""What counts as a picture of somebody: told by its bytes, small, and never anything that can hold a script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.picture import MAX_SIDE, picture_type
from support.pictures import NO_PICTURES, gif, jpeg, png, webp


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(), "image/png"),
        (png() + b"<script>alert(1)</script>", "image/png"),
        (gif(MAX_SIDE, 1), "image/gif"),
        (jpeg(640, 480), "image/jpeg"),
        (jpeg(1, 1, b"\xff\xff\xd0\xff\xc4\0\x02"), "image/jpeg"),
        *((webp(form, 1, MAX_SIDE), "image/webp") for form in (b"VP8X", b"VP8L", b"VP8 ")),
    ],
)
def test_a_picture_is_known_by_its_bytes(data: bytes, kind: str) -> None:
    assert picture_type(data) == kind


@pytest.mark.parametrize("data", NO_PICTURES.values(), ids=NO_PICTURES)
def test_anything_else_is_none(data: bytes) -> None:
    assert picture_type(data) is None


@pytest.mark.parametrize(
    "data",
    [
        png(claimed=(MAX_SIDE + 1, 1)),
        gif(1, MAX_SIDE + 1),
        jpeg(MAX_SIDE + 1, 1),
        *(webp(form, 1, MAX_SIDE + 1) for form in (b"VP8X", b"VP8L", b"VP8 ")),
    ],
)
def test_a_picture_whose_pixels_would_fill_memory_is_none(data: bytes) -> None:
    assert picture_type(data) is None


@given(st.sampled_from([png(), gif(2, 2), jpeg(2, 2), webp(b"VP8X", 2, 2)]), st.integers(0, 40), st.binary(max_size=40))
def test_whatever_is_cut_off_or_written_over_fails_without_an_error(whole: bytes, at: int, over: bytes) -> None:
    for data in (whole[:at], whole[:at] + over, whole[:at] + over + whole[at + len(over) :]):
        assert picture_type(data) in (None, "image/png", "image/gif", "image/jpeg", "image/webp")
