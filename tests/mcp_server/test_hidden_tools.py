"""D24: a tool that a rule hides from a host is none: it is not listed, and a call of it fails as of an unknown name."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from sublet.daemon.approvals.call_gate import CallGate
from sublet.daemon.approvals.gate_parts import GateParts
from sublet.daemon.config.paths import Home
from sublet.mcp_server.asking import TOOL_PREFIX
from sublet.mcp_server.catalogue import TOOLS
from sublet.policy.tool_names import is_known, tool_defect
from sublet.protocol.canonical import JsonValue
from sublet.supervisor import tools
from support.approvals import desk
from support.fake_daemon_api import FakeDaemonApi
from support.mcp_face import served, server_of

pytestmark = pytest.mark.anyio

HIDE: dict[str, JsonValue] = {
    "id": "no-lending",
    "effect": "deny",
    "action": "tool.call",
    "subject": {"kind": "mcp"},
    "resource": "sublet.delegate",
    "hide": True,
}


async def test_a_hidden_tool_is_neither_listed_nor_known(
    tmp_path: Path, home: Home, api: FakeDaemonApi, mode: str
) -> None:
    async with desk(tmp_path, [HIDE]) as side:
        gate = CallGate(GateParts(side.gatekeeper, side.journal, side.grants, side.questions, side.approver))
        async with served(api, home, gate), Client(server_of(home), mode=mode) as host:
            names = [tool.name for tool in (await host.list_tools()).tools]
            assert "delegate" not in names
            assert "directory" in names
            arguments = {"workspace_dir": "/srv/x", "peer": "bob", "prompt": "p"}
            told = []
            for name in ("delegate", "delegatt"):
                with pytest.raises(MCPError) as no:
                    await host.call_tool(name, arguments)
                told.append(str(no.value))
            hidden, absent = told
            assert hidden.replace("'delegate'", "'delegatt'") == absent
            assert "no-lending" not in hidden
        denied = [fields for _, fields in side.audit.entries if fields.get("decision") == "deny"]
        assert [one["rule"] for one in denied] == ["no-lending"], "the owner reads that it was tried"


def test_rules_may_name_every_tool_that_there_is() -> None:
    """A rule about a tool of ours that is not in the list of names would be refused when it is loaded."""
    names = [f"{TOOL_PREFIX}{tool.name}" for tool in TOOLS]
    own = {value for name, value in vars(tools).items() if name.isupper() and isinstance(value, str) and "." in value}
    for name in (*names, *own):
        assert is_known(name), name
        assert tool_defect(name) == ""
