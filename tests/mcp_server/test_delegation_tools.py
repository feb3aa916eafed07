"""What a host asks of ``delegate`` is what the daemon is asked for."""

from __future__ import annotations

from typing import Any

from sublet.daemon.api.delegations import CreateDelegation
from sublet.mcp_server.arguments import Delegate
from sublet.mcp_server.delegation_tools import _asked

ALL: dict[str, Any] = {
    "workspace_dir": "/w",
    "peer": "bob",
    "prompt": "mend",
    "description": "a few words",
    "access_mode": "ro",
    "exclude": ["*.log"],
    "ttl_seconds": 77,
    "max_files": 10,
    "wait_for_peer": True,
    "idempotency_key": "k",
    "deny": ["file.write"],
}


def test_a_request_has_what_was_given_and_the_defaults_of_a_delegation_for_the_rest() -> None:
    asked = _asked(Delegate.model_validate(ALL | {"background": False}))
    assert {name: getattr(asked, name) for name in ALL} == ALL
    rest = CreateDelegation(workspace_dir="/w", peer="bob", prompt="mend").model_dump(exclude=set(ALL))
    assert asked.model_dump(exclude=set(ALL)) == rest
