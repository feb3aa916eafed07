"""Things of ours that travel, made from fixed keys and numbers, with who reads them and how they are written again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nacl.signing import SigningKey

from sublet.protocol.ezagent import bundle, challenge, content, digest_tree, envelope, ids, question, reconciliation
from sublet.protocol.ezagent.acknowledgement import Acknowledgement, parse_acknowledgement
from sublet.protocol.ezagent.blob import Piece, PieceRequest, encode_piece, encode_wanted, parse_piece, parse_wanted
from sublet.protocol.ezagent.digest_tree import Node
from sublet.protocol.ezagent.identity import EntityKind, device_bytes, make_record, parse_record
from sublet.protocol.ezagent.inbox import encode_known, parse_known
from sublet.protocol.ezagent.reconciliation import Below, Differing, HeadAsked, LogAsked, LogsAsked, NodesAsked
from support.devices import make_device

DAEMON, ALICE, PHONE = (SigningKey(bytes([number]) * 32) for number in (1, 2, 3))
ROOM: Final = ids.room_id("@alice:a.example", 1_771_668_300_000, b"s" * 16)
OTHER_ROOM: Final = ids.room_id("@bob:b.example", 1, bytes(range(16)))
NOW: Final = 1_771_668_300_123
BARE: Final = make_record("alice", EntityKind.HUMAN, bytes(ALICE.verify_key), DAEMON, 7)
RECORD: Final = make_record(
    "alice", EntityKind.AGENT, bytes(ALICE.verify_key), DAEMON, 8,
    (make_device(BARE.entity_id, "phone", bytes(PHONE.verify_key), ALICE),),
)  # fmt: skip
ASKED: Final = challenge.Challenge(RECORD.entity_id, "@bob:b.example", bytes(range(32)), NOW)
SALT: Final = b"saltsalt"
HEADS: Final = (HeadAsked(1, 2, b"abcdef"), HeadAsked(2**53 - 1, 2**32 - 1, bytes(6)))
LOGS: Final = LogsAsked(
    SALT, (LogAsked(b"p" * 16, HEADS, ((5, 6), (7, 8)), (3, 2**53)), LogAsked(bytes(range(16))))
)  # fmt: skip
NODES: Final = NodesAsked(
    SALT,
    (
        Below((), tuple(bytes([n]) * 6 for n in range(16)), is_leaves=False),
        Below((10, 3, 15), (b"fprint",), is_leaves=True),
        Below((1, 2) * 16, (), is_leaves=True),
    ),
)
DIFFERING: Final = [Differing((0, 3, 15), ()), Differing((), (b"q" * 16, b"r" * 16)), Differing()]
BODY: Final = content.content_object(
    RECORD.entity_id, "gr\u00fc\u00df\u0065\u0301", "text/plain", "2026-02-21T10:05:00.123Z", ["a" * 64]
)
CONTENT: Final = content.sign_content(BODY, ALICE)
REF: Final[dict[str, Any]] = {
    "ref_id": ids.own_ref_id(NOW, ROOM, RECORD.entity_id, 3),
    "author": RECORD.entity_id,
    "content_type": "immutable",
    "content_id": CONTENT["content_id"],
    "created_at": "2026-02-21T10:05:00.123Z",
    "status": "active",
    "signature": "ed25519:later",
    "ext.reply_to": {"ref_id": "x"},
    "ext.thread": None,
    "ext.reactions": {"a": 1},
}


@dataclass(frozen=True)
class Travelling:
    """Bytes, who reads them, and how they are written anew from what was read."""

    raw: bytes
    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]


def _logs_or_nodes(asked: LogsAsked | NodesAsked) -> bytes:
    if isinstance(asked, LogsAsked):
        return reconciliation.encode_logs(asked)
    return reconciliation.encode_nodes(asked)


TRAVELLING: Final[Mapping[str, Travelling]] = {
    "record": Travelling(RECORD.encode(), parse_record, lambda one: one.encode()),
    "challenge": Travelling(
        challenge.encode_challenge(ASKED, RECORD, ALICE), challenge.parse_challenge,
        lambda one: challenge.encode_challenge(one[0], one[1], ALICE),
    ),
    "envelope": Travelling(
        envelope.seal(ALICE, RECORD.entity_id, f"ezagent/{ROOM}/config", NOW, b"payload").raw,
        envelope.unpack, lambda one: one.raw,
    ),
    "bundle": Travelling(
        bundle.encode_bundle([(kind, bytes([kind]) * kind) for kind in bundle.RecordKind], more=True),
        bundle.decode_bundle, lambda one: bundle.encode_bundle(one.records, more=one.more),
    ),
    "question": Travelling(
        question.encode_question("some/key", RECORD, ALICE, NOW, b"n" * 16, b"body"),
        lambda raw: question.parse_question("some/key", raw, NOW),
        lambda one: question.encode_question("some/key", RECORD, ALICE, one.signed_ms, one.nonce, one.body),
    ),
    "root": Travelling(
        reconciliation.encode_root(Node(3, 4, 5 << 240 | 6)), reconciliation.decode_root, reconciliation.encode_root
    ),
    "logs": Travelling(reconciliation.encode_logs(LOGS), reconciliation.decode_asked, _logs_or_nodes),
    "nodes": Travelling(reconciliation.encode_nodes(NODES), reconciliation.decode_asked, _logs_or_nodes),
    "differing": Travelling(
        reconciliation.encode_differing(DIFFERING), lambda raw: reconciliation.decode_differing(raw, 3),
        reconciliation.encode_differing,
    ),
    "acknowledgement": Travelling(
        Acknowledgement(b"epochnow", {"2026-02": {5: 6, 7: 2**32 - 1}, "2026-02-001": {}}).encode(),
        parse_acknowledgement, lambda one: one.encode(),
    ),
    "wanted piece": Travelling(encode_wanted(PieceRequest(ROOM, 512 << 10)), parse_wanted, encode_wanted),
    "piece": Travelling(encode_piece(Piece(9, b"blob")), parse_piece, encode_piece),
    "known rooms": Travelling(encode_known([OTHER_ROOM, ROOM]), parse_known, encode_known),
    "content": Travelling(content.canonical(CONTENT), content.parse_content, content.canonical),
}  # fmt: skip

NUMBERS: Final[Mapping[str, Any]] = {
    "room id": ROOM,
    "other room id": OTHER_ROOM,
    "created": ids.created_ms(ROOM),
    "ref id": ids.ref_id(NOW, bytes(range(10))),
    "own ref id": ids.own_ref_id(NOW, ROOM, "@alice:a.example", 65_537 + 5),
    "content id": ids.own_content_id(NOW, ROOM, "@alice:a.example", 4_096 + 7),
    "client id": ids.client_id("@alice:a.example", 65_536 + 9),
    "response": challenge.encode_response(ASKED, RECORD, ALICE).hex()[-96:],
    "device": device_bytes("@alice:a.example", "phone", b"k" * 32).decode(),
    "ref": content.ref_bytes(ROOM, REF).decode(),
    "ref signature": content.sign_ref(ROOM, REF, ALICE),
    "place": digest_tree.place_of("ezagent/x").hex(),
    "place of deletion": digest_tree.place_of_deletion("ezagent/x", "@alice:a.example", b"payload").hex(),
    "leaf of deletion": digest_tree.of_deletion(b"p" * 16),
    "head": digest_tree.of_head("ezagent/x", 5, 6, b"h" * 16),
    "fork": digest_tree.of_fork("ezagent/x", 5, 6),
    "outcast": digest_tree.of_outcast("ezagent/x", "@alice:a.example"),
    "bounds": [bound.hex() for bound in digest_tree.bounds((1, 15, 10))],
    "digits": digest_tree.digits(b"\x1f\xa0"),
    "fingerprint": digest_tree.fingerprint(Node(1, 2, 3), SALT).hex(),
    "fingerprint of a leaf": digest_tree.leaf_fingerprint(b"p" * 16, Node(1, 2, 3), SALT).hex(),
    "fingerprint of a head": digest_tree.head_fingerprint(b"h" * 16, SALT).hex(),
}


def told() -> dict[str, str]:
    """Return all of it as text."""
    return {name: one.raw.hex() for name, one in TRAVELLING.items()} | {
        name: str(value) for name, value in NUMBERS.items()
    }
