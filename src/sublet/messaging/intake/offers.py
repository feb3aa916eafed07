"""Keeps contents that come along with updates: only those that a verified update names.

Rules: nobody has signed a content for the room, so it counts by the ref that names its hash. Weak: a content that comes
before its ref is dropped and comes again with the difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sublet.protocol.ezagent.content import named_contents, parse_content
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import ContentId
from sublet.protocol.ezagent.yjs.update import Update


class Offers:
    """What is offered, which nobody has signed for the room.

    Args:
        counts: where refusals are counted.
    """

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._along: dict[ContentId, bytes] = {}

    @contextmanager
    def along(self, contents: Sequence[bytes]) -> Iterator[None]:
        """Offer contents to all updates that are taken meanwhile, as an answer does."""
        self._along = self._checked(contents)
        try:
            yield
        finally:
            self._along = {}

    def named_by(self, update: Update, contents: Sequence[bytes]) -> dict[ContentId, bytes]:
        """Return those of the offered contents that an update names, as they travel."""
        named = named_contents(update)
        if not named:
            return {}
        offered = self._along or self._checked(contents)
        return {content_id: offered[content_id] for content_id in named if content_id in offered}

    def _checked(self, contents: Sequence[bytes]) -> dict[ContentId, bytes]:
        found: dict[ContentId, bytes] = {}
        for raw in contents:
            try:
                found[str(parse_content(raw)["content_id"])] = raw
            except Refused as refused:
                self._counts[refused.refusal] += 1
        return found
