"""A ``DaemonApi`` that answers what the test has laid out, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from sublet.daemon.api.daemon_api import DaemonApi
from sublet.daemon.api.daemon import StatusView
from sublet.daemon.api.models import DelegationView
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
    """``answers`` maps a method to its answer, to an exception to raise, or to an async function to call."""

    def __init__(self, **answers: object) -> None:
        self.answers = answers
        self.asked: list[tuple[str, tuple[object, ...], dict[str, object]]] = []

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        if name not in DaemonApi.__dict__:
            raise AttributeError(name)

        async def method(*args: object, **named: object) -> object:
            self.asked.append((name, args, named))
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return await answer(*args, **named) if callable(answer) else answer

        return method

    @property
    def api(self) -> DaemonApi:
        """The double under the type that it plays."""
        return cast("DaemonApi", self)
