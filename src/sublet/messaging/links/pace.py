"""How much of what a peer says is taken in a second, on all its links together.

Whatever comes over a link is work for this process before anybody knows what it is good for: it is decrypted, read,
handed to Zenoh and looked at. So what a peer sends beyond its share stays in its own connection, where TCP makes it
wait, and costs nobody anything. The share is far more than rooms need: a thousand messages are a megabyte.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

BYTES_A_SECOND: Final = 16 << 20
MESSAGE_BYTES: Final = 2 << 10
"""What a message of Zenoh's counts beside its bytes, as reading it costs about as much as so many of them."""
AT_ONCE_BYTES: Final = 4 << 20
"""That may come at once after a while of less."""


@dataclass(slots=True, eq=False)
class Pace:
    """What is left of a peer's share.

    Args:
        clock: seconds that never go back.
    """

    clock: Callable[[], float] = time.monotonic
    _left: float = AT_ONCE_BYTES
    _looked: float = 0.0

    def spend(self, size: int, messages: int) -> None:
        """Count what has come: so many bytes, with so many messages."""
        self._left -= size + messages * MESSAGE_BYTES

    def is_spent(self) -> bool:
        """Tell whether nothing more is taken for a moment."""
        now = self.clock()
        self._left = min(AT_ONCE_BYTES, self._left + (now - self._looked) * BYTES_A_SECOND)
        self._looked = now
        return self._left <= 0
