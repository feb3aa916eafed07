"""An agent of type ``model`` in real delegations: governed tools on the mount, within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.chat_process import Step, chat_stub
from support.daemons import two_daemons
from support.leases import delegate, tree

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
