"""Tombstones: what a room keeps of a message, or of its files, that are gone for good.

A tombstone is a document of its own, whose id names the message, so it is a leaf of its own in the room's digest tree.
It says what is gone and when that was said, and nothing else, whoever writes it. It holds no hash of what is gone:
which contents belong to a message is told by the message's ref, which stays in the timeline's signed log.

Rules: the author of a message is known by its id, so a tombstone may come before the message does. Nobody takes a
tombstone back: deletions are refused, and what was written over counts as it did before.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.ref_shape import moment_ms
from sublet.protocol.ezagent.yjs.update import Update

MAX_TOMBSTONE_BYTES: Final = 512
"""Of an update of a tombstone, which holds two keys and a time each."""
MAX_TOMBSTONE_CLOCKS: Final = 8
"""Of one client; who has said twice that something is gone has said all there is to say."""


class Gone(StrEnum):
    """What of a message is gone."""

    MESSAGE = "message"
    """All of it: what it says, whatever it said before, and its files."""
    FILES = "files"
    """The files that it came with; what it says stays."""


def is_tombstone(path: tuple[str, ...], value: object) -> bool:
    """Tell whether a write to a tombstone has the one form: what is gone, and when that was said."""
    return len(path) == 1 and path[0] in {str(what) for what in Gone} and moment_ms(value) is not None


def check_tombstone(update: Update, size: int) -> None:
    """Check that an update fits into a tombstone, whatever it says.

    Args:
        update: what it does.
        size: its payload, bytes.

    Raises:
        Refused: ``WRONG_SHAPE``: it takes something back, or is larger than any of ours.
    """
    if not update.items or size > MAX_TOMBSTONE_BYTES or update.end > MAX_TOMBSTONE_CLOCKS:
        raise Refused(Refusal.WRONG_SHAPE, "a tombstone that is larger than any, or that takes something back")
