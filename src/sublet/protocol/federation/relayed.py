"""What two nodes say to each other over a relay: boxes that only the two of them can make or open.

A link between paired daemons proves a key; a relay proves none, and is to read nothing. So what goes over one is sealed
by libsodium's ``crypto_box`` between both pinned keys (Ed25519 turned into X25519), and padded in steps. Whoever can
open a box knows that one of the two has made it; kind, sender and recipient inside tell which. An answer names the
question that it belongs to, so that a relay can neither swap answers nor give an old one. A question has an id and a
time: the caller answers each once, and none that is old.

Weak: the keys do not change, so whoever gets a daemon's key opens what was recorded before. ``docs/federation-wire.md``
says the same for whoever writes another client.
"""

from __future__ import annotations

import os
import struct
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from nacl.exceptions import CryptoError
from nacl.public import Box
from nacl.signing import SigningKey, VerifyKey

from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.sealing.padding import pad, padded_size, unpad
from sublet.protocol.federation.envelope import MAX_ENVELOPE_BYTES
from sublet.protocol.federation.errors import FederationCode, TaskRefused
from sublet.protocol.federation.relayed_keys import ASKED
from sublet.protocol.signing import KEY_BYTES

ID_BYTES: Final = 16
MAX_ANSWER_BYTES: Final = 16 << 10
"""Of a sealed answer: a receipt or a page, neither of which is larger than 4 KiB."""
MAX_BOXES: Final = 1_024
"""Peers whose shared key is kept, which takes 0.1 ms to find."""
_TAG: Final = b"sublet/federation-relay/1"
_HEAD: Final = struct.Struct(f">{len(_TAG)}scc{KEY_BYTES}s{KEY_BYTES}s{ID_BYTES}sQ")
_QUESTION: Final = b"?"
_ANSWER: Final = b"!"
_MARKS: Final = {what: what[:1].encode() for what in ASKED}
_OVER: Final = Box.NONCE_SIZE + 16
"""Of a box, beyond what is in it."""
MAX_QUESTION_BYTES: Final = padded_size(MAX_ENVELOPE_BYTES + _HEAD.size + 4) + _OVER


@dataclass(frozen=True, slots=True)
class RelayedQuestion:
    """A question that came over a relay, of whoever holds the pinned key.

    Args:
        id: random, its own.
        at_ms: Unix milliseconds, when it was sealed.
        payload: what is asked.
    """

    id: bytes
    at_ms: int
    payload: bytes


class RelaySeals:
    """Seals and opens for one node.

    Args:
        key: of that node.
    """

    def __init__(self, key: SigningKey) -> None:
        self._secret = key.to_curve25519_private_key()
        self._own = bytes(key.verify_key)
        self._boxes: OrderedDict[bytes, Box] = OrderedDict()

    def ask(self, peer: bytes, what: str, payload: bytes, at_ms: int) -> tuple[bytes, bytes]:
        """Return a sealed question, and the id by which its answer is opened.

        Args:
            peer: raw Ed25519 key of the node that is asked.
            what: ``event`` or ``server``.
            payload: the question.
            at_ms: Unix milliseconds.

        Raises:
            TaskRefused: ``INVALID_PAYLOAD``: that key is none.
        """
        one = os.urandom(ID_BYTES)
        return self._sealed(peer, _QUESTION, what, one, at_ms, payload), one

    def read_question(self, peer: bytes, what: str, raw: bytes) -> RelayedQuestion:
        """Return a question that came.

        Raises:
            TaskRefused: ``INVALID_PAYLOAD``: that node has not sealed it for us, or not as this question.
        """
        if len(raw) > MAX_QUESTION_BYTES:
            raise _refused()
        one, at_ms, payload = self._opened(peer, _QUESTION, what, raw)
        return RelayedQuestion(one, at_ms, payload)

    def answer(self, peer: bytes, what: str, question: RelayedQuestion, payload: bytes) -> bytes:
        """Return the sealed answer to a question."""
        return self._sealed(peer, _ANSWER, what, question.id, question.at_ms, payload)

    def read_answer(self, peer: bytes, what: str, question_id: bytes, raw: bytes) -> bytes:
        """Return what a node answers to a question of ours.

        Raises:
            TaskRefused: ``INVALID_PAYLOAD``: it has not answered that.
        """
        if len(raw) > MAX_ANSWER_BYTES:
            raise _refused()
        one, _, payload = self._opened(peer, _ANSWER, what, raw)
        if one != question_id:
            raise _refused()
        return payload

    def _sealed(self, peer: bytes, kind: bytes, what: str, one: bytes, at_ms: int, payload: bytes) -> bytes:
        head = _HEAD.pack(_TAG, kind, _MARKS[what], self._own, peer, one, at_ms)
        return bytes(self._box(peer).encrypt(pad(head + payload)))

    def _opened(self, peer: bytes, kind: bytes, what: str, raw: bytes) -> tuple[bytes, int, bytes]:
        try:
            plain = unpad(self._box(peer).decrypt(raw))
            tag, said, mark, sender, recipient, one, at_ms = _HEAD.unpack_from(plain)
        except (CryptoError, ValueError, struct.error, Refused):
            raise _refused() from None
        if (tag, said, mark, sender, recipient) != (_TAG, kind, _MARKS[what], peer, self._own):
            raise _refused()
        return one, at_ms, plain[_HEAD.size :]

    def _box(self, peer: bytes) -> Box:
        box = self._boxes.pop(peer, None)
        if box is None:
            try:
                box = Box(self._secret, VerifyKey(peer).to_curve25519_public_key())
            except (CryptoError, ValueError):  # a point that is none, or of small order
                raise _refused() from None
            if len(self._boxes) >= MAX_BOXES:
                self._boxes.popitem(last=False)
        self._boxes[peer] = box
        return box


def _refused() -> TaskRefused:
    return TaskRefused(FederationCode.INVALID_PAYLOAD, "it is not sealed by that node for this one", "seal")
