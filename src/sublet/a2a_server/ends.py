"""Who writes the end of a task."""

from __future__ import annotations

from collections import OrderedDict

_MAX_REMEMBERED = 4_096


class Ends:
    """Whoever claims the end of a task first may write it, so that a cancel and a result never both do.

    Remembers the last few thousand, which outlasts the time in which the SDK can still ask about one of them.
    """

    def __init__(self) -> None:
        self._claimed: OrderedDict[str, None] = OrderedDict()

    def claim(self, task_id: str) -> bool:
        """Tell whether the end of ``task_id`` was still free; it is taken now."""
        if task_id in self._claimed:
            return False
        self._claimed[task_id] = None
        if len(self._claimed) > _MAX_REMEMBERED:
            self._claimed.popitem(last=False)
        return True
