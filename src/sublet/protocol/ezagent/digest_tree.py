"""The digest tree of a room: what two members compare to learn, at the cost of what differs, what each of them lacks.

A *leaf* stands for one document at a place that a hash of its id names, and its digest is the sum of one hash for each
head (the next clock of a client, and the chained hash of all that it has written there), for each fork, and for each
signer who has forked too often. What only deletes is in no head and is a leaf of its own. A *node* stands for all
leaves whose places begin with some hexadecimal digits: how many there are, and the sum of their digests modulo 2^256.
So a commit changes a leaf and the nodes above it, whatever else is in the room, and nothing depends on an order.

Rules: a leaf is made of header facts alone: id of the document, client, clock, head. In a room that is sealed the outer
header of an update carries exactly these (``client u53 · start u32 · end u32 · size u32 · head 16 bytes``, under the
id of the document and signed by the writer's device), and the head is the chain over the sealed bytes as they travel,
so that somebody who is no member and keeps sealed logs, such as a relay, has the same tree and answers from a slot of
its own. Weak: sums are no hash: who writes very many documents could make two sets of them with one sum, and would hide
its own from some members; nobody can do that to what others have written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from sublet.protocol.ezagent.ids import EntityId

FAN_OUT: Final = 16
"""Children of a node: one hexadecimal digit more."""
PLACE_BYTES: Final = 16
DIGEST_BYTES: Final = 32
FINGERPRINT_BYTES: Final = 6
"""Of a node, under a salt that is new each time, so that nobody can look for two nodes that share one."""
SALT_BYTES: Final = 8
MAX_DEPTH: Final = 2 * PLACE_BYTES
FORKS_OF_OUTCAST: Final = 8
"""Clients of one signer that fork in one document, before nothing of that signer counts there."""
CLOCKS_OF_FORK: Final = 1 << 32
"""What a fork counts as, beyond what any client can write: so nobody holds less by learning of one."""
_MODULUS: Final = 1 << 8 * DIGEST_BYTES
_PLACE: Final = b"sublet/place/1\n"
_HEAD: Final = b"sublet/head/1\n"
_FORK: Final = b"sublet/fork/1\n"
_OUTCAST: Final = b"sublet/outcast/1\n"
_DELETION: Final = b"sublet/deletion/1\n"

Prefix = tuple[int, ...]
"""Hexadecimal digits with which places begin."""


class Head(NamedTuple):
    """The next clock of a client in a document, and the hash of all that it wrote before."""

    clock: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Node:
    """How many leaves there are, how much they say was written, and the sum of their digests."""

    count: int = 0
    clocks: int = 0
    digest: int = 0

    def __add__(self, other: Node) -> Node:
        return Node(self.count + other.count, self.clocks + other.clocks, (self.digest + other.digest) % _MODULUS)

    def __sub__(self, other: Node) -> Node:
        return Node(self.count - other.count, self.clocks - other.clocks, (self.digest - other.digest) % _MODULUS)

    def same(self, other: Node) -> bool:
        """Tell whether two nodes stand for the same leaves."""
        return (self.count, self.digest) == (other.count, other.digest)

    @property
    def raw(self) -> bytes:
        """Return the sum as bytes."""
        return self.digest.to_bytes(DIGEST_BYTES, "big")


NOTHING: Final = Node()


def total(nodes: Iterable[Node]) -> Node:
    """Return the node above some nodes."""
    found = NOTHING
    for node in nodes:
        found += node
    return found


def place_of(name: str) -> bytes:
    """Return where the leaf of a document stands."""
    return hashlib.sha256(_PLACE + name.encode()).digest()[:PLACE_BYTES]


def place_of_deletion(name: str, signer: EntityId, payload: bytes) -> bytes:
    """Return where the leaf of an update stands that only deletes: the same one however often it is signed anew."""
    named = f"{name}\0{signer}\0".encode() + hashlib.sha256(payload).digest()
    return hashlib.sha256(_PLACE + named).digest()[:PLACE_BYTES]


def of_deletion(place: bytes) -> Node:
    """Return the leaf of an update that only deletes."""
    return Node(1, 1, _number(_DELETION + place))


def of_head(name: str, client: int, clock: int, head: bytes) -> Node:
    """Return what a client's head adds to the leaf of a document, which is counted by whoever makes it."""
    named = b"%b\0%d %d " % (name.encode(), client, clock)
    return Node(0, clock, _number(_HEAD + named + head))


def of_fork(name: str, client: int, clock: int) -> Node:
    """Return what a client that is known to fork adds to the leaf of a document."""
    return Node(0, CLOCKS_OF_FORK, _number(_FORK + b"%b\0%d %d" % (name.encode(), client, clock)))


def of_outcast(name: str, signer: EntityId) -> Node:
    """Return what a signer adds that has forked too often, whichever of its forks are known here."""
    return Node(0, CLOCKS_OF_FORK * FORKS_OF_OUTCAST, _number(_OUTCAST + f"{name}\0{signer}".encode()))


def digits(place: bytes) -> Prefix:
    """Return all digits of a place."""
    return tuple(digit for byte in place for digit in (byte >> 4, byte & 15))


def digit_at(place: bytes, depth: int) -> int:
    """Return the digit of a place below a prefix of so many digits."""
    return place[depth // 2] & 15 if depth % 2 else place[depth // 2] >> 4


def bounds(prefix: Prefix) -> tuple[bytes, bytes]:
    """Return the first and the last place below a prefix."""
    text = "".join(f"{digit:x}" for digit in prefix)
    return bytes.fromhex(text.ljust(MAX_DEPTH, "0")), bytes.fromhex(text.ljust(MAX_DEPTH, "f"))


def fingerprint(node: Node, salt: bytes) -> bytes:
    """Return a few bytes that tell a node from others in one exchange."""
    content = node.count.to_bytes(8, "big") + node.raw
    return hashlib.blake2b(content, digest_size=FINGERPRINT_BYTES, key=salt).digest()


def leaf_fingerprint(place: bytes, node: Node, salt: bytes) -> bytes:
    """Return a few bytes that tell a leaf, and where it stands, from others in one exchange."""
    return hashlib.blake2b(place + node.raw, digest_size=FINGERPRINT_BYTES, key=salt).digest()


def head_fingerprint(head: bytes, salt: bytes) -> bytes:
    """Return a few bytes that tell the history of a client from others in one exchange."""
    return hashlib.blake2b(head, digest_size=FINGERPRINT_BYTES, key=salt).digest()


def _number(data: bytes) -> int:
    return int.from_bytes(hashlib.sha256(data).digest(), "big")
