"""Every tool of a host asks before it acts: each is called, and nothing happens where the answer is no."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from sublet.daemon.api.operation import Stated
from sublet.daemon.approvals.call_gate import CallGate
from sublet.daemon.approvals.gate_parts import GateParts
from sublet.daemon.config.paths import Home
from sublet.mcp_server.asking import TOOL_PREFIX
from sublet.mcp_server.catalogue import TOOLS
from support import mcp_face
from support.answering import AnsweringTable
from support.approvals import desk
from support.fake_daemon_api import FakeDaemonApi
from support.tool_answers import text_of

pytestmark = pytest.mark.anyio

ARGUMENTS: dict[str, dict[str, Any]] = {
    "delegate": {"workspace_dir": "/srv/projects/x", "peer": "bob", "prompt": "p"},
    "delegate_output": {"delegation_id": "dlg_1"},
    "delegate_cancel": {"delegation_id": "dlg_1"},
    "delegate_review": {"delegation_id": "dlg_1", "action": "apply"},
    "directory": {},
    "send_message": {"to": "Work", "message": "hello"},
    "read_messages": {"room": "Work"},
    "change_message": {"room": "Work", "ref_id": "01M8HGN87651021VQE1YPQRQ0R", "remove": True},
    "people": {"action": "invite", "room": "Work", "entity": "bob"},
    "watch": {},
}


def test_these_are_all_tools_that_there_are() -> None:
    assert {tool.name for tool in TOOLS} == set(ARGUMENTS)


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("denied", [True, False])
async def test_a_tool_asks_and_does_nothing_where_the_answer_is_no(
    tmp_path: Path, home: Home, api: FakeDaemonApi, monkeypatch: pytest.MonkeyPatch, name: str, denied: bool
) -> None:
    reached: list[str] = []

    class Recording(AnsweringTable):
        """Notes which operations of the daemon are asked for."""

        def _bound(self, operation: Stated[Any]) -> Any:
            reached.append(operation.name)
            return super()._bound(operation)

    monkeypatch.setattr(mcp_face, "AnsweringTable", Recording)
    rule: dict[str, Any] = {
        "id": "never",
        "effect": "deny",
        "action": "tool.call",
        "subject": {"kind": "mcp"},
        "resource": "sublet.*",
    }
    async with desk(tmp_path, [rule] if denied else []) as side:
        gate = CallGate(GateParts(side.gatekeeper, side.journal, side.grants, side.questions, side.approver))
        async with mcp_face.served(api, home, gate), Client(mcp_face.server_of(home)) as host:
            await host.list_tools()
            reached.clear()
            told = await host.call_tool(name, ARGUMENTS[name])
        asked = [one for _, one in side.audit.entries if one.get("action") == "tool.call"]
        decided = [(one["decision"], one["resource"]) for one in asked]
    if denied:
        assert told.is_error
        assert "never" in text_of(told) or "policy" in text_of(told).lower()
        assert reached == [], "it has asked the daemon for nothing"
        assert decided == [("deny", f"{TOOL_PREFIX}{name}")]
    else:
        assert "never" not in text_of(told)
        assert reached != [], "else the test would pass with tools that do nothing"
