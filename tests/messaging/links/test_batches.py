"""What comes over a link is read as Zenoh reads it, and what no daemon says is refused before Zenoh has it."""

from __future__ import annotations

import pytest

from sublet.messaging.links.batches import MAX_KEY_BYTES, BatchReader, Declaration, Declares, Odd
from sublet.messaging.links.declared import (
    CHANGES_A_SECOND,
    EVERYTHING,
    MAX_CHANGES,
    MAX_DECLARED,
    MAX_PATTERNS,
    DeclaredByPeer,
    DeclaredOnLink,
)
from sublet.messaging.links.shut_out import MAX_SHUT_OUT_SECONDS, SHUT_OUT_SECONDS, ShutOut
from support import zenoh_words as zenoh

KEY = b"ezagent/01a2212b-1000-7167-9394-011daa814786/root"
ALL = EVERYTHING.encode()


def read(*batches: bytes) -> list[Declaration]:
    """Return what is declared by batches that come after a handshake."""
    found: list[Declaration] = []
    BatchReader(found.append).feed(zenoh.handshake() + b"".join(map(zenoh.batch, batches)))
    return found


def test_what_a_daemon_says_is_read_whole() -> None:
    found = read(
        zenoh.frame(zenoh.declare(0, 1, b"ezagent"), zenoh.declare(2, 2, b"/**", 1), zenoh.declare(4, 3, b"/**", 1)),
        zenoh.frame(b"\xbe\x00" + zenoh.QOS + b"\x1a"),
        zenoh.frame(zenoh.declare(0, 4, KEY), zenoh.declare(6, 5, scope=4)) + zenoh.KEEP_ALIVE,
        zenoh.frame(zenoh.push(KEY, bytes(300), b"att"), zenoh.request(KEY, b"?"), zenoh.response(KEY, b"answer")),
        zenoh.frame(zenoh.error()),
        *zenoh.fragments(zenoh.push(KEY, b"\x9e" * 3_000), 1_000),
        zenoh.frame(zenoh.undeclare(6, 5), zenoh.undeclare(0, 4)) + zenoh.CLOSE,
    )
    assert found == [
        Declaration(Declares.KEY, 1, ends=False, suffix=b"ezagent"),
        Declaration(Declares.SUBSCRIBER, 2, ends=False, scope=1, suffix=b"/**"),
        Declaration(Declares.QUERYABLE, 3, ends=False, scope=1, suffix=b"/**"),
        Declaration(Declares.KEY, 4, ends=False, suffix=KEY),
        Declaration(Declares.TOKEN, 5, ends=False, scope=4),
        Declaration(Declares.TOKEN, 5, ends=True),
        Declaration(Declares.KEY, 4, ends=True),
    ]


@pytest.mark.parametrize(
    ("batches", "count"),
    [
        ([zenoh.frame(zenoh.push(KEY, b"1"), zenoh.push(KEY, b"2"))], 2),
        ([zenoh.frame(zenoh.push(KEY, b"1")) + zenoh.KEEP_ALIVE], 2),
        ([zenoh.KEEP_ALIVE * 100], 100),
        ([zenoh.frame()] * 50, 50),
        ([b""] * 50, 50),
        (zenoh.fragments(zenoh.push(KEY, bytes(3_000)), 1_000), 4),
    ],
)
def test_what_holds_no_message_costs_as_much_as_one(batches: list[bytes], count: int) -> None:
    reader = BatchReader(lambda _: None)
    reader.feed(zenoh.handshake() + b"".join(map(zenoh.batch, batches)))
    assert reader.messages == count


def test_it_is_the_same_byte_by_byte() -> None:
    said = zenoh.handshake() + zenoh.batch(zenoh.frame(zenoh.declare(0, 1, KEY), zenoh.push(KEY, b"x")))
    found: list[Declaration] = []
    reader = BatchReader(found.append)
    for at in range(len(said)):
        assert found == []
        reader.feed(said[at : at + 1])
    assert len(found) == 1
    assert not reader._held


@pytest.mark.parametrize("first", [zenoh.INIT, zenoh.INIT_ANSWER])
def test_both_ends_begin_as_zenoh_does(first: bytes) -> None:
    BatchReader(lambda _: None).feed(zenoh.batch(first) + zenoh.batch(zenoh.OPEN))


ODD_BEGINNINGS = {
    "no handshake": zenoh.frame(zenoh.declare(0, 1, KEY)),
    "another version": zenoh.INIT.replace(b"\x09", b"\x0a", 1),
    "no marks of fragments": zenoh.INIT[:-2],
    "low latency": zenoh.INIT[:-3] + b"\x81\x85\x27\x01",
    "compression": zenoh.INIT[:-3] + b"\x81\x86\x27\x01",
    "marks twice": zenoh.INIT[:-3] + b"\x81\xa7\x01\x27\x00",
    "a cookie that is too long": zenoh.INIT_ANSWER[:20] + b"\xff",
    "cut": zenoh.INIT[:2],
}


@pytest.mark.parametrize("what", ODD_BEGINNINGS)
def test_another_beginning_is_refused(what: str) -> None:
    with pytest.raises(Odd):
        BatchReader(lambda _: None).feed(zenoh.batch(ODD_BEGINNINGS[what]))


def test_nothing_comes_before_the_end_of_the_handshake() -> None:
    with pytest.raises(Odd):
        BatchReader(lambda _: None).feed(zenoh.batch(zenoh.INIT) + zenoh.batch(zenoh.frame(zenoh.declare(0, 1, KEY))))


INTEREST = b"\x79\x01\x09"
ODD_BATCHES = {
    "a second handshake": zenoh.INIT,
    "a second opening": zenoh.OPEN,
    "an interest": zenoh.frame(INTEREST),
    "a message of the network about itself": zenoh.frame(b"\x1f\x01"),
    "a message about the transport": b"\x00\x01",
    "a join": b"\x07",
    "a declaration in a fragment": zenoh.fragments(zenoh.declare(2, 1, KEY), 10)[0],
    "a declaration behind a frame that is no frame": zenoh.frame() + zenoh.declare(2, 1, KEY)[1:],
    "a sample of shared memory": zenoh.frame(b"\x3d\x00" + zenoh.text(KEY) + b"\x81\x12" + zenoh.text(b"x")),
    "a sample with a source": zenoh.frame(b"\x3d\x00" + zenoh.text(KEY) + b"\x81\x41\x01x" + zenoh.text(b"x")),
    "a sample with a time": zenoh.frame(b"\x3d\x00" + zenoh.text(KEY) + b"\x21\x01\x01x" + zenoh.text(b"x")),
    "a sample with a stack of times": zenoh.frame(b"\xbd\x00" + zenoh.text(KEY) + b"\x47\x01x\x01\x01x"),
    "a deletion": zenoh.frame(b"\x3d\x00" + zenoh.text(KEY) + b"\x02"),
    "a pattern that is published under": zenoh.frame(zenoh.push(b"ezagent/**/a/**/a", b"x")),
    "a pattern that is asked for": zenoh.frame(zenoh.request(b"ezagent/*/root", b"")),
    "a pattern in a fragment": zenoh.fragments(zenoh.push(b"ezagent/**", bytes(300)), 100)[0],
    "a key that is cut by a fragment": zenoh.fragments(zenoh.push(KEY, bytes(300)), 10)[0],
    "a key that is too long": zenoh.frame(zenoh.push(b"k" * (MAX_KEY_BYTES + 1), b"")),
    "an answer whose name has another length": zenoh.frame(
        zenoh.response(KEY, b"x").replace(b"\x43\x12\xf0", b"\x43\x13\xf0")
    ),
    "an error that Zenoh does not say by itself": zenoh.frame(zenoh.error(b"Timeout!")),
    "an error with an extension": zenoh.frame(zenoh.error().replace(b"\x05\x07", b"\x85\x07")),
    "an error that ends behind the batch": zenoh.frame(zenoh.error()[:-6]),
    "a number of a key that Zenoh cuts": zenoh.frame(zenoh.declare(0, 1 << 16, KEY)),
    "a number that Zenoh cuts": zenoh.frame(zenoh.declare(6, 1 << 32, KEY)),
    "a declaration of another kind": zenoh.frame(b"\x9e" + zenoh.QOS + b"\x08\x01\x00"),
    "a token with an extension": zenoh.frame(b"\x9e" + zenoh.QOS + b"\xa6\x01\x00" + zenoh.text(KEY) + b"\x01"),
    "an end with another extension": zenoh.frame(b"\x9e" + zenoh.QOS + b"\x87\x01\x42\x00"),
    "a payload that ends behind the batch": zenoh.frame(b"\x3d\x00" + zenoh.text(KEY) + b"\x01\x7f"),
    "a cut frame": b"\xa5",
    "a cut close": b"\x03",
}


@pytest.mark.parametrize("what", ODD_BATCHES)
def test_what_no_daemon_says_is_refused(what: str) -> None:
    with pytest.raises(Odd):
        read(ODD_BATCHES[what])


def test_what_is_dropped_and_what_goes_on_of_a_message_declares_nothing() -> None:
    first, *rest = zenoh.fragments(zenoh.push(KEY, bytes(300)), 100)
    dropped = b"\xa6" + zenoh.varint(9) + b"\x03"
    assert read(first, dropped, *rest) == []


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.peer = DeclaredByPeer(lambda: self.now)
        self.link = DeclaredOnLink(self.peer)

    def take(self, *messages: bytes) -> None:
        BatchReader(self.link.take).feed(zenoh.handshake() + zenoh.batch(zenoh.frame(*messages)))

    def odd(self, *messages: bytes) -> str:
        with pytest.raises(Odd) as raised:
            self.take(*messages)
        return str(raised.value)


def test_one_pattern_is_what_a_daemon_hears_and_answers_under() -> None:
    world = World()
    world.take(zenoh.declare(0, 1, b"ezagent"), zenoh.declare(2, 1, b"/**", 1), zenoh.declare(4, 2, b"/**", 1))
    world.take(zenoh.declare(2, 3, ALL), zenoh.declare(2, 4, b"/**", 1, sender=False))
    for other in (KEY, b"ezagent/*", b"ezagent/**/x", b"**", b"ezagent"):
        assert world.odd(zenoh.declare(2, 9, other)) == "a key that no daemon declares"
        assert world.odd(zenoh.declare(4, 9, other)) == "a key that no daemon declares"
    world.take(zenoh.declare(2, 10, ALL))
    assert len(world.link._live) == 1 + MAX_PATTERNS + 1
    assert world.odd(zenoh.declare(2, 11, ALL)) == "more patterns than any daemon has"


def test_a_token_has_a_key_of_its_own() -> None:
    world = World()
    world.take(zenoh.declare(0, 1, KEY), zenoh.declare(6, 1, scope=1), zenoh.declare(6, 2, KEY + b"/x"))
    for key in (ALL, b"ezagent/*/x", b"ezagent/$*", b"elsewhere/x"):
        assert world.odd(zenoh.declare(6, 9, key)) == "a key that no daemon declares"
        assert world.odd(zenoh.declare(0, 9, key + b"/**")) == "a key that no daemon declares"
    assert world.odd(zenoh.declare(6, 9, scope=7)) == "a key that nobody has declared"
    assert world.odd(zenoh.declare(6, 1, KEY)) == "something that is declared twice"
    assert world.peer.count == 3


def test_keys_do_not_grow_by_being_put_together() -> None:
    world = World()
    world.take(zenoh.declare(0, 1, b"ezagent/" + b"k" * 600))
    assert world.odd(zenoh.declare(0, 2, b"/k", 1)) == "a key that no daemon declares"
    assert world.odd(zenoh.declare(6, 2, b"/" + b"k" * 600, 1)) == "a key that is too long"


def test_all_links_of_a_peer_count_together_and_what_ends_counts_no_more() -> None:
    world = World()
    other = DeclaredOnLink(world.peer)
    for number in range(MAX_DECLARED // 2):
        for link in (world.link, other):
            link.take(Declaration(Declares.TOKEN, number, ends=False, suffix=KEY))
    with pytest.raises(Odd, match="declarations"):
        other.take(Declaration(Declares.TOKEN, MAX_DECLARED, ends=False, suffix=KEY))
    other.ended()
    other.ended()
    assert world.peer.count == MAX_DECLARED // 2
    world.link.take(Declaration(Declares.TOKEN, 0, ends=True))
    world.link.take(Declaration(Declares.TOKEN, 0, ends=True))
    assert world.peer.count == MAX_DECLARED // 2 - 1


def test_changes_have_a_rate() -> None:
    world = World()

    def change(times: int) -> None:
        for _ in range(times):
            world.link.take(Declaration(Declares.TOKEN, 1, ends=False, suffix=KEY))
            world.link.take(Declaration(Declares.TOKEN, 1, ends=True))

    change(MAX_CHANGES // 2)
    with pytest.raises(Odd, match="changes"):
        change(1)
    world.now += 10
    world.link.ended()
    change(int(10 * CHANGES_A_SECOND) // 2)
    with pytest.raises(Odd, match="changes"):
        change(1)


def test_whoever_offends_again_is_shut_out_for_longer() -> None:
    now = [1.0]
    out = ShutOut(lambda: now[0])
    assert out.admits(b"eve")
    seconds = []
    for _ in range(8):
        seconds.append(out.note(b"eve", "why").seconds)
        assert not out.admits(b"eve")
        assert out.admits(b"bob")
        now[0] += seconds[-1]
        assert out.admits(b"eve")
    assert seconds[:3] == [SHUT_OUT_SECONDS, 2 * SHUT_OUT_SECONDS, 4 * SHUT_OUT_SECONDS]
    assert seconds[-1] == MAX_SHUT_OUT_SECONDS
    assert out.told() == {b"eve": "why"}
    now[0] += MAX_SHUT_OUT_SECONDS
    assert out.told() == {}
    assert out.note(b"eve", "why").seconds == SHUT_OUT_SECONDS
    out.keep({b"bob"})
    assert out.admits(b"eve")
