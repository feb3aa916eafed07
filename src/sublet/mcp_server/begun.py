"""What a tool begins in the daemon, which a host may withdraw before it was told what was begun."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import anyio

from sublet.daemon.api.base import Request, View
from sublet.daemon.api.operation import Operation
from sublet.mcp_server.call import Call

ViewT = TypeVar("ViewT", bound=View)
RECORD_SECONDS = 2.0
"""How long a call that is cut off waits for a delegation that is being recorded."""


class Begun(Generic[ViewT]):
    """What a call begins, known even where the call is cut off while it is being recorded.

    Args:
        operation: begins it.
    """

    def __init__(self, operation: Operation[Any, ViewT]) -> None:
        self._operation = operation
        self.view: ViewT | None = None
        self._failure: Exception | None = None
        self._over = anyio.Event()

    async def made_by(self, call: Call, request: Request) -> ViewT:
        """Have it recorded, and return it.

        Raises:
            SubletError: it was refused.
        """
        scope = anyio.CancelScope(shield=True)

        async def record() -> None:
            try:
                with scope:
                    self.view = await call.operations.call(self._operation, request)
            except Exception as failure:
                self._failure = failure
            finally:
                self._over.set()

        async with anyio.create_task_group() as group:
            group.start_soon(record)
            try:
                await self._over.wait()
            except anyio.get_cancelled_exc_class():
                # What is all but recorded becomes known, and a person who is asked meanwhile is not waited for.
                with anyio.move_on_after(RECORD_SECONDS, shield=True):
                    await self._over.wait()
                scope.cancel()
                raise
        if self._failure is not None:
            raise self._failure
        assert self.view is not None, "it ends with one of the two"
        return self.view
