"""What members say to each other while they reconcile a room: it survives the way, and nothing else is taken."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.ezagent.digest_tree import FAN_OUT, MAX_DEPTH, Node
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.reconciliation import (
    MAX_LISTED,
    Below,
    HeadAsked,
    LogAsked,
    LogsAsked,
    NodesAsked,
    decode_asked,
    decode_differing,
    decode_root,
    encode_logs,
    encode_nodes,
    encode_root,
)

prefixes = st.lists(st.integers(0, 15), max_size=MAX_DEPTH).map(tuple)
places = st.binary(min_size=16, max_size=16)
heads = st.builds(HeadAsked, st.integers(0, 2**53 - 1), st.integers(0, 2**32 - 1), st.binary(min_size=6, max_size=6))
logs = st.builds(
    LogAsked,
    places,
    st.lists(heads, max_size=5).map(tuple),
    st.lists(st.tuples(st.integers(0, 2**53 - 1), st.integers(0, 2**32 - 1)), max_size=5).map(tuple),
    st.just((3, 2**53)),
)


@given(st.binary(min_size=8, max_size=8), st.lists(logs, max_size=9).map(tuple))
def test_questions_for_logs_survive_the_way(salt: bytes, asked: tuple[LogAsked, ...]) -> None:
    assert decode_asked(encode_logs(LogsAsked(salt, asked))) == LogsAsked(salt, asked)


fingerprints = st.binary(min_size=6, max_size=6)
leaves = st.builds(Below, prefixes, st.lists(fingerprints, max_size=MAX_LISTED).map(tuple), st.just(True))
children = st.builds(
    Below, prefixes, st.lists(fingerprints, min_size=FAN_OUT, max_size=FAN_OUT).map(tuple), st.just(False)
)


@given(st.lists(leaves | children, max_size=9).map(tuple))
def test_questions_for_nodes_survive_the_way(below: tuple[Below, ...]) -> None:
    asked = NodesAsked(b"saltsalt", below)
    assert decode_asked(encode_nodes(asked)) == asked


@given(st.builds(Node, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**256 - 1)))
def test_roots_survive_the_way(node: Node) -> None:
    assert decode_root(encode_root(node)) == node


@given(st.binary(max_size=300))
def test_whatever_is_no_message_is_refused(data: bytes) -> None:
    for decode in (decode_asked, decode_root, lambda raw: decode_differing(raw, 3)):
        with suppress(Refused):
            decode(data)
