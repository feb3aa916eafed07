"""A daemon that answers what the test has laid out, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from sublet.daemon.api.daemon import StatusView
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.operation import Feed
from sublet.daemon.operations.document import declarations
from sublet.daemon.operations.table import Bound, OperationTable
from sublet.policy.decision import Subject
from sublet.protocol.lifecycle import DelegationState

STATUS = StatusView(
    pid=1,
    version="0",
    home="/h",
    node_id="node-a",
    fingerprint="SHA256:x",
    a2a_url="http://127.0.0.1:1/",
    sftp="127.0.0.1:2",
    control_socket="/h/run/control.sock",
    started_at="2026-01-01T00:00:00Z",
    uptime_seconds=1,
    peers=0,
    delegations={},
)
DELEGATION = DelegationView(
    delegation_id="dlg_1",
    state=DelegationState.CREATED,
    peer="bob",
    workspace_dir="/w",
    description="d",
    access_mode="rw",
    ttl_seconds=60,
    created_at="2026-01-01T00:00:00Z",
    updated_at="2026-01-01T00:00:00Z",
)


class DaemonDouble:
    """``answers`` maps the name of an operation to its answer.

    That may be an exception to raise, or an async function to call. ``asked`` are the calls: the name, the request and
    the caller.
    """

    def __init__(self, answers: Mapping[str, object] | None = None) -> None:
        self.answers = dict(answers or {})
        self.asked: list[tuple[str, tuple[object, ...], dict[str, object]]] = []

    async def _answer(self, name: str, args: tuple[object, ...], named: dict[str, object]) -> object:
        self.asked.append((name, args, named))
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return await answer(*args, **named) if callable(answer) else answer

    @property
    def table(self) -> OperationTable:
        """Every operation that is declared, answered by the double."""
        return _Answering(self._answer)


class _Answering(OperationTable):
    def __init__(self, answer: Callable[..., Awaitable[object]]) -> None:
        super().__init__()
        for _, stated in declarations():
            for one in stated.values():
                method = partial(self._feed if isinstance(one, Feed) else self._call, one.name)
                self._served[one.name] = Bound(one, method)
        self._answer = answer

    async def _call(self, name: str, request: object, caller: Subject) -> object:
        return await self._answer(name, (request, caller), {})

    async def _feed(self, name: str, request: Any, caller: Subject) -> AsyncGenerator[object, None]:
        """Ask again and again for what comes after the last event, first without patience."""
        patience = 0.0
        while True:
            events: Any = await self._answer(name, (request, caller), {"timeout": patience})
            yield events
            patience = 15.0
            if events:
                request = request.model_copy(update={"cursor": events[-1].seq})
