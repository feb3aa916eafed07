"""A model that demands that all can be taken back: real daemons, a real mount, the SDK's client over stdio."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client

from sublet.daemon.config.paths import resolve_home
from sublet.workspace.kept.budget import MAX_KEPT_BYTES
from support.daemons import two_daemons
from support.mcp_face import server_of
from support.tool_answers import facts

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("keep_all", [True, False])
async def test_what_undo_could_not_give_back_is_refused_where_all_must_be_kept(tmp_path: Path, keep_all: bool) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("a", "b", "c"):
        with (project / name).open("wb") as file:
            file.truncate(MAX_KEPT_BYTES // 3 + 1)
    with two_daemons(tmp_path / "d") as (lender, _):
        lender.run("allow", str(project))
        home = resolve_home({"SUBLET_HOME": str(lender.home)})
        async with Client(server_of(home)) as host:
            given = {
                "workspace_dir": str(project),
                "peer": "bob",
                "prompt": "for f in a b c; do echo theirs > $f || exit 1; done",
                "keep_all": keep_all,
            }
            found = facts(await host.call_tool("delegate", given))["delegation_id"]
            call = {"delegation_id": found, "section": "summary", "wait_seconds": 45}
            ended = facts(await host.call_tool("delegate_output", call))
    theirs = [name for name in ("a", "b", "c") if (project / name).read_bytes() == b"theirs\n"]
    assert ended.get("keep_all", False) is keep_all
    assert ended["undo"] == "possible"
    if keep_all:
        assert ended["error_code"] == "TASK_FAILED"
        assert theirs == ["a", "b"]
        assert (project / "c").stat().st_size == MAX_KEPT_BYTES // 3 + 1
        assert "not_kept" not in ended["audit"]
    else:
        assert ended["state"] == "completed"
        assert theirs == ["a", "b", "c"]
        assert ended["audit"]["not_kept"] == 1
