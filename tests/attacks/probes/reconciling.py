"""What reconciling a room costs where a member makes it as hard as it can, and how much of what it says is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from random import Random

from attacks.probe import CostProbe, KeptProbe, Probe, Reason
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.events.events import Events
from sublet.messaging.ports.rows import LogRow, StagedUpdate
from sublet.messaging.reconciling.contradictions import MAX_KEPT, Contradictions
from sublet.messaging.reconciling.exchange import Exchange, below, differing
from sublet.messaging.reconciling.logs import RoomTree
from sublet.protocol.ezagent.digest_tree import (
    FAN_OUT,
    FINGERPRINT_BYTES,
    MAX_DEPTH,
    NOTHING,
    Node,
    Prefix,
    digits,
    place_of,
)
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.reconciliation import (
    Below,
    Differing,
    NodesAsked,
    decode_asked,
    decode_differing,
    encode_differing,
    encode_nodes,
)

ROOM = "01a2212b-1000-7167-9394-011daa814786"
SALT = b"saltsalt"


def _crowded(number: int) -> list[str]:
    """Return documents whose author has chosen ids until all of them stand close beside each other."""
    found, at = list[str](), 0
    while len(found) < number // 32:
        at += 1
        name = f"ezagent/{ROOM}/content/{at}"
        if digits(place_of(name))[:1] == (7,):
            found.append(name)
    return found


def _written(names: list[str]) -> SqliteStore:
    store = SqliteStore(None)
    with store.transaction():
        for seq, name in enumerate(names, 1):
            row = store.document(name, ROOM, "content")
            store.tree.changed([StagedUpdate(row, LogRow(seq, 1, 0, 1, b"", b"h"), "", first=True)])
    return store


def _write(names: list[str]) -> None:
    _written(names).close()


def _prefixes(number: int) -> bytes:
    """Return a question that is as long as it may be, for prefixes that are as long as they may be."""
    all_below = tuple(
        Below(tuple(place % FAN_OUT for _ in range(MAX_DEPTH)), (bytes(FINGERPRINT_BYTES),) * FAN_OUT, is_leaves=False)
        for place in range(max(1, number // 120))
    )
    return encode_nodes(NodesAsked(SALT, all_below))


def _answer_nodes(question: bytes) -> None:
    with contextlib.suppress(Refused):
        asked = decode_asked(question)
        assert isinstance(asked, NodesAsked)
        tree = RoomTree(_TREE, ROOM)
        encode_differing([differing(tree, one, asked.salt) for one in asked.below])


_TREE = _written([f"ezagent/{ROOM}/content/{number}" for number in range(500)])


def _everywhere(prefix: Prefix) -> Differing:
    return Differing(digits=tuple(range(FAN_OUT))) if len(prefix) < MAX_DEPTH else Differing()


def _follow(turns: int) -> Exchange:
    """Follow a member that says that everything differs, for so many questions at most."""
    exchange, tree = Exchange(Random(0)), RoomTree(_TREE, ROOM)
    for _ in range(turns):
        asked = exchange.next()
        if not asked:
            break
        encode_nodes(NodesAsked(SALT, tuple(below(tree, prefix, SALT) for prefix in asked)))
        answer = encode_differing([_everywhere(prefix) for prefix in asked])
        exchange.told(asked, decode_differing(answer, len(asked)))
    return exchange


@contextlib.contextmanager
def _followed() -> Iterator[SqliteStore]:
    exchange = _follow(10_000)
    yield _TREE
    del exchange


@contextlib.contextmanager
def _contradicted() -> Iterator[Contradictions]:
    store = SqliteStore(None)
    events = Events(store)
    made = Contradictions(events)
    for number in range(4 * MAX_KEPT):
        made.shown(f"room {number}", "@eve:e.example", Node(1, 2, 3), NOTHING)
        with store.transaction():
            events.write()
    yield made
    made.listeners.clear()
    made._found.clear()
    store.close()


PROBES: list[Probe] = [
    CostProbe(
        name="reconciling: documents whose ids were chosen until they stand beside each other",
        covers=[
            "messaging.backends.sqlite_tree:SqliteTree.changed",
            "messaging.backends.sqlite_tree:SqliteTree._change_above",
        ],
        make=_crowded,
        run=_write,
    ),
    CostProbe(
        name="reconciling: questions for many deep prefixes",
        covers=[
            "messaging.reconciling.exchange:differing",
            "protocol.ezagent.reconciliation:decode_asked",
            "protocol.ezagent.reconciliation:_below",
        ],
        make=_prefixes,
        run=_answer_nodes,
        size=1_024,
        most=3_840,
    ),
    CostProbe(
        name="reconciling: a member to whom everything differs",
        covers=[
            "messaging.reconciling.exchange:Exchange.told",
            "messaging.reconciling.exchange:Exchange.next",
            "messaging.reconciling.exchange:below",
        ],
        make=lambda number: number // 64,
        run=_follow,
        size=512,
    ),
    KeptProbe(
        name="reconciling: a member to whom everything differs, followed to the end",
        covers=["messaging.reconciling.exchange:Exchange.told"],
        attack=_followed,
        bound=8 << 20,
    ),
    KeptProbe(
        name="reconciling: members whose roots are contradicted, in room after room",
        covers=["messaging.reconciling.contradictions:Contradictions._note"],
        attack=_contradicted,
        bound=4 << 20,
    ),
    Reason(
        name="reconciling: questions to members, and summing up what is here",
        covers=[
            "messaging.syncing.reconciler:Reconciler._room",
            "messaging.syncing.reconciler:Reconciler._follow",
            "messaging.syncing.reconciler:Reconciler._follow.follow",
            "messaging.syncing.reconciler:_all_done",
            "messaging.syncing.reconciler:sum_up",
        ],
        why="each member is compared with once, which ends with the exchange, which has a probe of its own; nobody "
        "waits for one that is silent; the last ends with our own documents",
    ),
]
