"""Names and states that both sides of A2A go by: routes beside the protocol's own, the artifact with DONE, ends."""

from __future__ import annotations

from typing import Final

from a2a.types import TaskState

REST_PATH: Final = "/a2a/v1"
"""Below which the REST binding is; JSON-RPC is at the root."""
PAIR_PATH: Final = "/sublet/v1/pair"
"""Where a pairing link is used up."""
MOVED_PATH: Final = "/sublet/v1/moved"
"""Where a paired daemon tells where it is called from now on."""
DONE_ARTIFACT: Final = "awcp-done"
"""Id of the artifact that holds a signed DONE."""
TERMINAL: Final = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_REJECTED,
    }
)
"""States in which a task has ended."""
