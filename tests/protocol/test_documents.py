"""Documents under their digests, JSON that people write, and lines of a stream."""

from __future__ import annotations

import hashlib
import zlib
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sublet.protocol.documents import MAX_DOCUMENT_BYTES, Document, document, unpacked
from sublet.protocol.lines import LineCutter, LineTooLong, squeezed
from sublet.protocol.strict_model import FROM_LIST, read_strictly
from sublet.protocol.unique_json import unique_json


def test_a_document_is_the_same_whatever_the_order_of_its_names() -> None:
    made, other = document({"b": [1, "\u00e9\ud800"], "a": {}}), document({"a": {}, "b": [1, "\u00e9\ud800"]})
    assert made is not None
    assert made == other
    raw = b'{"a":{},"b":[1,"\\u00e9\\ud800"]}'
    assert made.digest == hashlib.sha256(raw).hexdigest()
    assert zlib.decompress(made.packed) == raw
    assert unpacked(made) == {"a": {}, "b": [1, "\u00e9\ud800"]}


def test_a_document_has_a_bound_and_is_what_its_digest_says() -> None:
    assert MAX_DOCUMENT_BYTES == 8 << 20
    largest = document("x" * (MAX_DOCUMENT_BYTES - 2))
    assert largest is not None
    assert len(str(unpacked(largest))) == MAX_DOCUMENT_BYTES - 2
    assert document("x" * (MAX_DOCUMENT_BYTES - 1)) is None
    huge = b'"' + b"x" * MAX_DOCUMENT_BYTES + b'"'
    packed = zlib.compress(huge)
    for damaged in (
        Document(largest.digest, b"no zlib"),
        Document(largest.digest, zlib.compress(b'"other"')),
        Document("0" * 64, largest.packed),
        Document(hashlib.sha256(huge).hexdigest(), packed),
    ):
        with pytest.raises(ValueError, match="not the bytes"):
            unpacked(damaged)


def test_a_byte_order_mark_is_no_part_of_what_somebody_wrote() -> None:
    assert unique_json(b'\xef\xbb\xbf{"a": 1}') == unique_json(b'{"a": 1}') == {"a": 1}
    for raw in (b'{"a": 1, "a": 1}', b"{}\xef\xbb\xbf", b"\xff"):
        with pytest.raises(ValueError, match=r"is there twice|no JSON|Extra data|UTF-8"):
            unique_json(raw)


class Written(BaseModel):
    model_config = ConfigDict(populate_by_name=True, extra="forbid")

    count: int = 0
    name: Annotated[str, Field(alias="theName")] = ""
    many: Annotated[tuple[int, ...], FROM_LIST] = ()


@pytest.mark.parametrize(
    ("written", "count"),
    [({"count": 5}, 5), ({"count": 5.0}, 5), ({"count": 5.5}, None), ({"count": "5"}, None), ({"count": True}, None)],
)
def test_nothing_is_made_of_another_type(written: Any, count: int | None) -> None:
    if count is not None:
        assert read_strictly(Written, written).count == count
        return
    with pytest.raises(ValidationError):
        read_strictly(Written, written)


def test_fields_have_the_names_of_files_and_tuples_are_lists_there() -> None:
    assert read_strictly(Written, {"theName": "x", "many": [1.0, 2]}) == Written(name="x", many=(1, 2))
    given: list[Any] = [{"name": "x"}, {"many": "12"}, {"many": {"a": 1}}, []]
    for written in given:
        with pytest.raises(ValidationError):
            read_strictly(Written, written)


@given(st.lists(st.sampled_from([b"a", b"bb", b"\n", b"\n\n\n", b" ", b"\t\n"])), st.integers(1, 3))
def test_lines_are_those_of_the_whole_however_it_is_cut(pieces: list[bytes], size: int) -> None:
    data = b"".join(pieces)
    cutter = LineCutter(100)
    lines = [line for at in range(0, len(data), size) for line in cutter.feed(data[at : at + size])]
    wanted = [line for line in data.split(b"\n") if line.strip()]
    assert [*lines, *cutter.end()] == wanted
    assert cutter.end() == []
    assert b"\n\n" not in squeezed(data)
    assert [line for line in squeezed(data).split(b"\n") if line] == [line for line in data.split(b"\n") if line]


@pytest.mark.parametrize("feeds", [[b"abcd"], [b"ab", b"cd"], [b"abcd\n"], [b"x\nabcd"], [b"x\nabcd\ny"], [b"abcd\nx"]])
def test_a_line_has_a_bound_whether_it_has_ended_or_not(feeds: list[bytes]) -> None:
    def fed(most: int) -> None:
        cutter = LineCutter(most)
        for data in feeds:
            cutter.feed(data)

    fed(4)
    with pytest.raises(LineTooLong):
        fed(3)
