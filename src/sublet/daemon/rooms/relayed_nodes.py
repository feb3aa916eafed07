"""What nodes that only a relay joins ask each other: sealed between their pinned keys, of now, and each thing once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from nacl.signing import SigningKey

from sublet.federation.ports import KnownNode, What
from sublet.messaging.syncing.replays import SeenQuestions
from sublet.protocol.ezagent.question import MAX_AGE_MS
from sublet.protocol.federation.errors import TaskRefused
from sublet.protocol.federation.relayed import RelayedQuestion, RelaySeals
from sublet.protocol.federation.relayed_keys import relayed_between, relayed_key
from sublet.protocol.ids import node_id


class RelayedNodes:
    """See the module. Used on the event loop alone.

    Args:
        key: this daemon's.
        pinned: returns the node whose key is pinned, by its node id.
        wall: Unix seconds.
    """

    def __init__(
        self, key: SigningKey, pinned: Callable[[str], KnownNode | None], wall: Callable[[], float] = time.time
    ) -> None:
        self.own = node_id(bytes(key.verify_key))
        self._seals = RelaySeals(key)
        self._pinned = pinned
        self._wall = wall
        self._seen = SeenQuestions()
        self._began_ms = self._now_ms()

    def served(self, what: What) -> str:
        """Return the pattern under which this node is asked, by whomever."""
        return relayed_key(what, self.own, "*")

    def question(self, node: KnownNode, what: What, payload: bytes) -> tuple[str, bytes, bytes]:
        """Return key and bytes of a question to a node, and the id by which its answer is opened.

        Raises:
            TaskRefused: the key that is pinned for it is none.
        """
        raw, one = self._seals.ask(node.public_key, what, payload, self._now_ms())
        return relayed_key(what, node.id, self.own), raw, one

    def answered(self, node: KnownNode, what: What, question_id: bytes, raw: bytes) -> bytes | None:
        """Return what a node has answered; None where it has not answered that."""
        with suppress(TaskRefused):
            return self._seals.read_answer(node.public_key, what, question_id, raw)
        return None

    def opened(self, what: What, key: str, raw: bytes) -> tuple[KnownNode, RelayedQuestion] | None:
        """Return who asks us, and what; None where nobody whose key is pinned asks that for the first time and now."""
        between = relayed_between(key)
        node = self._pinned(between[1]) if between is not None and between[0] == self.own else None
        if node is None:
            return None
        try:
            question = self._seals.read_question(node.public_key, what, raw)
        except TaskRefused:
            return None
        now = self._now_ms()
        # What was asked before this process began it may have answered then, which nobody knows any more.
        if abs(now - question.at_ms) > MAX_AGE_MS or question.at_ms < self._began_ms:
            return None
        return (node, question) if self._seen.is_first(node.id, question.id, question.at_ms, now) else None

    def answer(self, node: KnownNode, what: What, question: RelayedQuestion, payload: bytes) -> bytes:
        """Return an answer of ours as it is sent."""
        return self._seals.answer(node.public_key, what, question, payload)

    def _now_ms(self) -> int:
        return int(self._wall() * 1000)
