"""An agent of type ``model`` in real delegations: governed tools on the mount, within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.chat_process import Step, chat_stub
from support.daemons import Daemon, pair, two_daemons, wait_for
from support.leases import begin, delegate, finish, tree, wait_state

pytestmark = pytest.mark.timeout(120)


def test_it_repairs_a_failing_test_through_its_tools(tmp_path: Path) -> None:
    """Case: file.read, shell.exec, file.edit and file.delete act in the mount, and the lender has the result."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "add.sh").write_text("echo $(($1 - $2))\n")
    (project / "check.sh").write_text('test "$(sh add.sh 2 3)" = 5 && echo passed || { echo failed; exit 1; }\n')
    (project / "old.txt").write_text("old\n")
    script: list[Step] = [
        {"say": "I look first.", "calls": [["file_list", {}], ["file_read", {"path": "add.sh"}]]},
        {"calls": [["shell_exec", {"command": "sh check.sh"}]]},
        {"calls": [["file_edit", {"path": "add.sh", "old": "$1 - $2", "new": "$1 + $2"}]]},
        {"calls": [["shell_exec", {"command": "sh check.sh"}], ["file_delete", {"path": "old.txt"}]]},
        {"say": "Mended add.sh; the check passes."},
    ]
    with (
        chat_stub(tmp_path / "chat", script) as stub,
        two_daemons(tmp_path / "d", agent=stub.agent()) as (lender, _executor),
    ):
        ended = delegate(lender, project, "Mend the failing check.")
        assert ended["state"] == "completed", ended
        assert ended["result"]["final_summary"] == "Mended add.sh; the check passes."
        results = stub.results()
        assert "add.sh  18" in results[0]
        assert results[1] == "echo $(($1 - $2))\n"
        assert results[2].startswith("[exit status 1]\nfailed")
        assert results[3:] == ["Replaced 1 time.", "[exit status 0]\npassed\n", "Deleted."]
    assert tree(project) == {
        "add.sh": b"echo $(($1 + $2))\n",
        "check.sh": (project / "check.sh").read_bytes(),
    }


def test_a_denied_tool_stays_undone_and_bounds_and_failures_are_told(tmp_path: Path) -> None:
    """Case: agent.json denies file.delete; then the budget ends, and the endpoint refuses."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "keep.txt").write_text("keep\n")
    script: list[Step] = [
        {"calls": [["file_delete", {"path": "keep.txt"}], ["file_write", {"path": "new.txt", "content": "x"}]]},
        {"say": "I may not delete it."},
        {"say": "Once more.", "calls": [["file_list", {}]], "usage": [90_000, 20_000]},
        {"status": 400, "message": "out of order"},
    ]
    with chat_stub(tmp_path / "chat", script) as stub:
        agent = stub.agent(provider={"max_tokens": 100_000}, tools={"blacklist": ["file.delete"]})
        with two_daemons(tmp_path / "d", agent=agent) as (lender, _executor):
            ended = delegate(lender, project, "Delete keep.txt.")
            assert ended["state"] == "completed", ended
            assert tree(project) == {"keep.txt": b"keep\n", "new.txt": b"x"}
            refused = [one["content"] for one in stub.requests()[1]["body"]["messages"] if one["role"] == "tool"]
            assert refused[0].startswith("Refused by policy, and not done")
            ended = delegate(lender, project, "Go on.")
            assert "110,000 tokens, and 100,000 (max_tokens)" in ended["error"]["message"], ended
            ended = delegate(lender, project, "And again.")
            assert "status 400: out of order" in ended["error"]["message"], ended


def test_cancelling_ends_a_request_in_the_middle_of_its_stream(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    script: list[Step] = [{"say": "Thinking about it at some length.", "how": "stall"}]
    with (
        chat_stub(tmp_path / "chat", script) as stub,
        two_daemons(tmp_path / "d", agent=stub.agent()) as (lender, executor),
    ):
        delegation_id = begin(lender, project, "Think.")
        wait_state(lender, delegation_id, "running")
        wait_for(stub.requests, 20, "a request")
        lender.run("cancel", delegation_id)
        assert str(finish(lender, delegation_id).state) == "cancelled"
        wait_for(lambda: executor.mounts == [], 20, "the end of the mount")


def test_an_agent_of_type_a2a_has_the_agent_of_a_peer_answer(tmp_path: Path) -> None:
    """Case: the chain travels, the peer's agent answers and is cancelled with its caller, and sees no files."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "secret.txt").write_text("secret\n")
    script = "echo asked; cat secret.txt 2>/dev/null || true"
    far = {"id": "far", "provider": {"type": "command", "argv": ["sh", "-s"]}}
    near = {"id": "near", "provider": {"type": "a2a", "peer": "carol"}}
    with two_daemons(tmp_path / "d", agent=near) as (lender, middle):
        carol = Daemon(tmp_path / "d" / "c")
        try:
            carol.up(agent=far)
            pair(middle, carol, "carol")
            ended = delegate(lender, project, script)
            assert ended["state"] == "completed", ended
            assert ended["result"]["final_summary"].strip() == "asked"
            delegation_id = begin(lender, project, "echo begun; sleep 600")
            wait_for(lambda: "begun" in lender.run("output", delegation_id).stdout, 20, "the first words")
            lender.run("cancel", delegation_id)
            assert str(finish(lender, delegation_id).state) == "cancelled"
            wait_for(lambda: not list((carol.home / "state" / "scratch").iterdir()), 20, "the end of the work there")
        finally:
            carol.down()
