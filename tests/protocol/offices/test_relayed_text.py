"""What came is passed on as it came, and costs what it takes."""

from __future__ import annotations

import json

import pytest

from sublet.protocol.bounded_json import parse_counted
from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.wire import VALUE_BYTES, Wire, wire_size, wire_text, with_text


def read(text: str) -> JsonValue:
    value, values = parse_counted(text)
    return with_text(value, text, values)


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ('["client:tool_call",{"a": 1.50,  "b":[{}]}]', '{"a": 1.50,  "b":[{}]}'),
        ('  [ "x" ,\n {"a":"],}"} \t]\n', '{"a":"],}"}'),
        (' [ {"a":1e3} ] ', '{"a":1e3}'),
        ('["x",{}]', "{}"),
        ('["a,b",{"a":1}]', '{"a": 1}'),  # where its name ends is not plain, so it is written anew
        ('["a\\u002cb",{"a":1}]', '{"a": 1}'),
        ('["x",{"a":"\u00e9"}]', '{"a": "\\u00e9"}'),
    ],
)
def test_an_object_keeps_the_text_that_it_came_as(text: str, own: str) -> None:
    found = read(text)
    assert isinstance(found, list)
    last = found[-1]
    assert isinstance(last, Wire)
    assert last.text == own
    assert last.text.isascii()
    assert json.loads(last.text) == last == json.loads(text)[-1]
    assert wire_size(last) == len(own)
    assert json.loads(wire_text(["e", last], separators=(",", ":"))) == ["e", last]
    assert own in wire_text([last])


@pytest.mark.parametrize("text", ["[]", "7", '{"a":1}', '["x"]', '["x",1]', '["x",{},{}]', "[[],[]]"])
def test_all_else_is_what_it_is(text: str) -> None:
    found = read(text)
    assert found == json.loads(text)
    assert not isinstance(found, list) or not any(isinstance(one, Wire) for one in found)


def test_its_weight_is_of_its_values_and_of_its_text() -> None:
    many, long = read('["x",{"a":[' + "0," * 999 + "0]}]"), read('["x",{"a":"' + "x" * 5_000 + '"}]')
    assert isinstance(many, list)
    assert isinstance(long, list)
    assert isinstance(many[1], Wire)
    assert isinstance(long[1], Wire)
    assert many[1].weight > 1_000 * VALUE_BYTES
    assert 10_000 < long[1].weight < 10_000 + 20 * VALUE_BYTES


def test_what_is_no_object_of_a_member_is_written_as_ever() -> None:
    assert wire_text(["x", {"a": [1, None]}], separators=(",", ":")) == '["x",{"a":[1,null]}]'
    assert wire_size({"a": 1}) == len('{"a": 1}')


@pytest.mark.parametrize("text", ["[0,0,0]", '{"a":{"b":1}}', '"a,b:c[d"', "7"])
def test_as_many_values_are_counted_as_there_are_at_least(text: str) -> None:
    def count(value: object) -> int:
        if isinstance(value, dict):
            return 1 + sum(1 + count(one) for one in value.values())
        return 1 + sum(map(count, value)) if isinstance(value, list) else 1

    value, values = parse_counted(text)
    assert count(value) <= values
    assert parse_counted('"' + "," * 5_000 + '"')[1] < 10
