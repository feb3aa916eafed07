"""Two engines that reconcile a room without a network: what one asks is given to the other at once."""

from __future__ import annotations

from random import Random

from sublet.messaging.reconciling.exchange import Exchange, below
from sublet.messaging.reconciling.logs import RoomTree, first_question, go_on_at, wanted
from sublet.messaging.reconciling.roots import Theirs
from sublet.messaging.syncing.answers import tree
from sublet.messaging.syncing.stated import settle, take_root
from sublet.protocol.ezagent.bundle import decode_bundle
from sublet.protocol.ezagent.reconciliation import NodesAsked, decode_differing, encode_logs, encode_nodes
from support.rooms import Peer

SALT = bytes(range(8))


def stated(peer: Peer, other: Peer, room: str) -> Theirs | None:
    """Let a peer take what another states that it has of a room."""
    ours = peer.engine.roots.statement(room)
    assert ours is not None
    raw = other.engine.roots.statement(room, ours)
    assert raw is not None
    return take_root(peer.engine, room, raw)


def reconcile(peer: Peer, other: Peer, room: str, random: Random | None = None) -> int:
    """Let a peer take what another one has of a room and it lacks; return how many bytes went over."""
    exchange, size, left = Exchange(random or Random(0)), 0, [0]
    theirs = stated(peer, other, room)
    if theirs is None or not peer.engine.roots.differs(room, theirs):
        return size
    while asked := exchange.next():
        ours = RoomTree(peer.store, room)
        question = encode_nodes(NodesAsked(SALT, tuple(below(ours, prefix, SALT) for prefix in asked)))
        answer = tree(other.engine, room, question)
        assert answer is not None
        size += len(question) + len(answer)
        places = exchange.told(asked, decode_differing(answer, len(asked)))
        size += fetch(peer, other, room, places, left)
        exchange.progressed()
    settle(peer.engine, room, theirs, is_all=not sum(left) and not exchange.is_given_up)
    return size


def fetch(peer: Peer, other: Peer, room: str, places: list[bytes], left: list[int] | None = None) -> int:
    """Let a peer take what another one has at some places; return how many bytes went over.

    ``left`` takes how much of each answer could not be taken.
    """
    size, logs = 0, wanted(peer.engine, room, places, SALT)
    while logs:
        asked = first_question(logs, SALT)
        question = encode_logs(asked)
        answer = tree(other.engine, room, question)
        assert answer is not None
        size += len(question) + len(answer)
        bundle = decode_bundle(answer)
        outcome = peer.engine.intake.take_bundle(room, bundle)
        if left is not None:
            left.append(outcome.left)
        logs = logs[go_on_at(bundle, asked) :]
        logs = wanted(peer.engine, room, list(dict.fromkeys(log.place for log in logs)), SALT)
    return size
