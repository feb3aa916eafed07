"""What a host says of a lease by ``delegate`` holds: where it is writable, what stays, and what its agent may call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.types import ListRootsResult, Root
from pydantic import FileUrl

from sublet.daemon.config.paths import resolve_home
from support.chat_process import Step, chat_stub
from support.daemons import Daemon, two_daemons
from support.mcp_face import server_of
from support.tool_answers import facts

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


def host_of(daemon: Daemon, root: Path) -> Client:
    """Return a host that has opened a directory."""

    async def list_roots(context: ClientRequestContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl(root.as_uri()))])

    return Client(server_of(resolve_home({"SUBLET_HOME": str(daemon.home)})), list_roots_callback=list_roots)


async def done(host: Client, project: Path, prompt: str, **terms: object) -> dict[str, Any]:
    """Delegate, and return the end."""
    given = {"workspace_dir": str(project), "peer": "bob", "prompt": prompt, **terms}
    begun = facts(await host.call_tool("delegate", given))
    section = {"delegation_id": begun["delegation_id"], "section": "summary", "wait_seconds": 45}
    return facts(await host.call_tool("delegate_output", section))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "out").mkdir(parents=True)
    (root / "a").write_text("mine\n")
    (root / "out" / "b").write_text("mine\n")
    return root


async def test_a_host_lends_a_part_to_be_written_and_nothing_to_be_deleted(tmp_path: Path, project: Path) -> None:
    script = "echo x >> a; rm a; echo new > out/new; echo more >> out/b; rm out/b; true"
    with two_daemons(tmp_path / "d") as (lender, _):
        async with host_of(lender, project) as host:
            ended = await done(host, project, script, writable=["out"], no_delete=True)
            assert ended["state"] == "completed", ended
        assert (project / "a").read_text() == "mine\n"
        assert (project / "out" / "b").read_text() == "mine\nmore\n"
        assert (project / "out" / "new").read_text() == "new\n"
        (listed,) = lender.json("ls", "--all")["delegations"]
        assert (listed["writable"], listed["no_delete"]) == (["out"], True)


@pytest.mark.parametrize(
    ("narrow", "held"),
    [
        ({"deny": ["file.write"]}, {"file_write"}),
        ({"deny": ["Write", "Bash"]}, {"file_write", "shell_exec"}),
        ({"only": ["file.*"]}, {"shell_exec"}),
        ({}, set()),
    ],
)
async def test_a_host_narrows_what_the_agent_over_there_may_call(
    tmp_path: Path, project: Path, narrow: dict[str, list[str]], held: set[str]
) -> None:
    steps: list[Step] = [
        {"calls": [["file_write", {"path": "written", "content": "x"}]]},
        {"calls": [["shell_exec", {"command": "echo x > run"}]]},
        {"say": "done"},
    ]
    with (
        chat_stub(tmp_path / "c", steps) as stub,
        two_daemons(tmp_path / "d", agent=stub.agent(id="model")) as (lender, worker),
    ):
        async with host_of(lender, project) as host:
            ended = await done(host, project, "do it", **narrow)
            assert ended["state"] == "completed", ended
        wrote, ran = ((project / name).exists() for name in ("written", "run"))
        assert (wrote, ran) == ("file_write" not in held, "shell_exec" not in held)
        refused = {str(one).startswith("Refused by policy") for one in stub.results()[: 2 if len(held) == 2 else 0]}
        assert refused <= {True}
        denials = worker.json("audit", "denials")["entries"]
        assert {one["resource"].replace(".", "_") for one in denials} == held
        for one in denials:
            again = worker.json("policy", "explain", "--entry", str(one["seq"]))
            assert (again["decision"], again["rule"]) == ("deny", one["rule"])
