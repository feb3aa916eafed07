"""What words from elsewhere cost: queries, messages that are taken in, marks, and decisions about messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from attacks.kit.as_probe import throwing
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe
from daemon.rooms import test_search
from sublet.cli.dashes import is_option
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.builtins.search import words_of
from sublet.messaging.extensions.emoji import is_one_emoji
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.ids import ref_id
from support.rooms import Peer, peers, shared_room

UNKNOWN = 2_000


def query(text: str) -> None:
    with suppress(SubletError):
        words_of(text)


def many_words(size: int) -> SqliteStore:
    """Return a store in which a message of many words was taken in."""
    store = SqliteStore(None)
    document = store.document("index/room/2026-11", "room", "index").number
    with store.transaction():
        store.search.put(document, ref_id(1, bytes(10)), "ab " * (size // 3), "0")
    return store


def find(store: SqliteStore) -> None:
    with suppress(SubletError):
        store.search.find(["a" * 2] * 16, ["room"], 50, None)


def said(size: int) -> tuple[Peer, str]:
    (alice,) = peers("alice")
    room = shared_room(alice)
    for _ in range(size // 256):
        alice.do("message.send", room_id=room, body="word " * 50)
    return alice, room


def taken_in(given: tuple[Peer, str]) -> None:
    from sublet.messaging.builtins.search import _read_some

    alice, room = given
    while _read_some(alice.engine.operating, alice.id, [room], 100):
        pass


@contextmanager
def decisions_about_nothing() -> Iterator[SqliteStore]:
    """A moderator decides about messages that nobody has."""
    store = SqliteStore(None)
    with store.transaction():
        for number in range(UNKNOWN):
            store.search.doubt(ref_id(number, bytes(10)))
    assert store.search.due(["room"], UNKNOWN) == []
    yield store


PROBES: Sequence[Probe] = (
    CostProbe(
        name="search: a query of nothing but words",
        covers=("messaging.builtins.search:words_of",),
        make=lambda n: "a " * (n // 2),
        run=query,
    ),
    CostProbe(
        name="search: quotes and syntax of the index",
        covers=("messaging.builtins.search:words_of",),
        make=lambda n: '" OR NEAR(' * (n // 10),
        run=query,
    ),
    CostProbe(
        name="search: a message of many words that is found",
        covers=(
            "messaging.backends.sqlite_search:SqliteSearch.find",
            "messaging.backends.sqlite_search:_query",
        ),
        make=many_words,
        run=find,
    ),
    CostProbe(
        name="search: messages that are taken in",
        covers=(
            "messaging.builtins.search:_read_some",
            "messaging.builtins.search:_take_one",
            "messaging.backends.sqlite_search:SqliteSearch.unread",
            "messaging.backends.sqlite_search:SqliteSearch.put",
        ),
        make=said,
        run=taken_in,
    ),
    CostProbe(
        name="reactions: one emoji of many parts",
        covers=("messaging.extensions.emoji:is_one_emoji", "messaging.extensions.emoji:_is_part"),
        make=lambda n: "\u200d".join(["\U0001f468"] * (n // 7)),
        run=is_one_emoji,
    ),
    CostProbe(
        name="cli: a text that begins with a dash",
        covers=("cli.dashes:is_option",),
        make=lambda n: "-" + "a-" * (n // 2) + "!",
        run=partial(is_option, names=frozenset({"--json"})),
    ),
    KeptProbe(
        name="search: decisions about messages that nobody has",
        covers=("messaging.backends.sqlite_search:SqliteSearch.doubt",),
        attack=decisions_about_nothing,
        bound=4 << 20,
    ),
    FailureProbe(
        name="search: rooms that are removed, words that are overwritten",
        covers=(
            "messaging.backends.sqlite_search:SqliteSearch.drop_some_of",
            "messaging.backends.sqlite_search:SqliteSearch.tidy",
            "messaging.builtins.search:_search",
            "messaging.builtins.search:_tidy",
        ),
        throw=throwing(
            test_search.test_a_room_that_is_forgotten_leaves_no_words,
            test_search.test_what_was_edited_deleted_or_taken_down_is_not_found_and_not_kept,
        ),
    ),
)
