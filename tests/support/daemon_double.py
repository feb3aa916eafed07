"""A daemon that answers what the test has laid out, and remembers what it was asked: ``DaemonApi`` and operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from sublet.daemon.api.daemon import StatusView
from sublet.daemon.api.daemon_api import DaemonApi
from sublet.daemon.api.models import DelegationView
from sublet.daemon.api.operation import AnswerT, AnyOperation, Operation, RequestT
from sublet.daemon.operations.document import declarations
from sublet.daemon.operations.table import OperationTable
from sublet.policy.model import Subject
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
    """Answers by what it is given: an answer, an exception to raise, or an async function to call.

    Args:
        operations: what operations of the table are answered with.
        answers: what methods of ``DaemonApi`` are answered with, by their names.
    """

    def __init__(self, operations: Mapping[AnyOperation, object] | None = None, **answers: object) -> None:
        self.operations = {**(operations or {})}
        self.answers = answers
        self.asked: list[tuple[str, tuple[object, ...], dict[str, object]]] = []

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        if name not in DaemonApi.__dict__:
            raise AttributeError(name)

        async def method(*args: object, **named: object) -> object:
            self.asked.append((name, args, named))
            return await _answered(self.answers[name], *args, **named)

        return method

    @property
    def table(self) -> OperationTable:
        """All operations that are declared, answered by the double; policy is not asked."""
        return _ScriptedTable(self)

    @property
    def api(self) -> DaemonApi:
        """The double under the type that it plays."""
        return cast("DaemonApi", self)


class _ScriptedTable(OperationTable):
    def __init__(self, double: DaemonDouble) -> None:
        super().__init__()
        self._double = double

    @property
    def operations(self) -> tuple[AnyOperation, ...]:
        return tuple(one for _, stated in declarations() for one in stated.values())

    async def call(self, operation: Operation[RequestT, AnswerT], request: RequestT, caller: Subject) -> AnswerT:
        self._double.asked.append((operation.name, (request, caller), {}))
        return cast("AnswerT", await _answered(self._double.operations[operation], request, caller))


async def _answered(answer: Any, *args: object, **named: object) -> object:
    if isinstance(answer, Exception):
        raise answer
    return await answer(*args, **named) if callable(answer) else answer
