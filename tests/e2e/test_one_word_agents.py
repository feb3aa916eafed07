"""D57 and D58: an agent by one word, what it lacks told everywhere before anybody lends it a directory, and a shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.daemons import Daemon, pair

NOWHERE = "/usr/bin:/bin"


def test_D58_what_is_missing_is_told_by_both_sides_before_anything_is_lent(tmp_path: Path) -> None:
    lender, worker = Daemon(tmp_path / "a"), Daemon(tmp_path / "b", environ={"PATH": NOWHERE, "HOME": str(tmp_path)})
    project = tmp_path / "project"
    project.mkdir()
    try:
        lender.up()
        worker.up("--agent", "codex")
        pair(lender, worker)
        install = "npm install -g @openai/codex"
        assert any("codex" in one and install in one for one in worker.info["remarks"])
        (one,) = worker.json("agents")["agents"]
        assert one["ok"] is False
        assert install in one["detail"]
        checks = {check["name"]: check for check in worker.json("doctor", check=(0, 1))["checks"]}
        assert checks["agent codex"]["ok"] is False
        assert install in checks["agent codex"]["fix"]
        (shown,) = lender.json("peers", "show", "bob")["agents"]
        assert shown["why_not"] == "its program `codex` is missing"
        ended = lender.json("delegate", str(project), "--to", "bob", "Do something.", check=(1, 5))
        assert ended["error"]["code"] == "DEP_MISSING"
        assert install in ended["error"]["hint"]
        assert ended["usage"]["operations"] == 0

        added = worker.json("agents", "add", "opencode")
        assert added["takes"] == "prose"
        assert added["offered"] is False, "this daemon reads the file of --agent"
    finally:
        lender.down()
        worker.down()


def test_D57_a_shell_that_is_given_prose_says_what_it_is(tmp_path: Path) -> None:
    lender, worker = Daemon(tmp_path / "a"), Daemon(tmp_path / "b")
    project, schema = tmp_path / "project", tmp_path / "schema.json"
    project.mkdir()
    schema.write_text(json.dumps({"type": "object"}))
    try:
        lender.up()
        worker.up()
        pair(lender, worker)
        assert worker.json("agents", "add", "shell", "--id", "second")["offered"] is True
        assert [one["agentId"] for one in worker.json("agents", "list")["agents"]] == ["second", "shell"]
        prose = "Run the test suite and repair what fails."
        ended = lender.json("delegate", str(project), "--to", "bob", prose, check=(1,))
        assert "shell and no language model" in json.dumps(ended)
        done = lender.json("delegate", str(project), "--to", "bob", "no-such-program", check=(1,))
        assert "language model" not in json.dumps(done)
        refused = worker.run("ask", "echo 1", "--agent", "shell", "--schema", str(schema), check=(1, 2))
        assert "has no model" in refused.stderr
    finally:
        lender.down()
        worker.down()


@pytest.mark.parametrize("word", ["claud", "Claude", "no/such/file.json"])
def test_an_unknown_word_is_named(tmp_path: Path, word: str) -> None:
    daemon = Daemon(tmp_path / "a")
    for command in (("up", "--detach", "--agent", word), ("agents", "add", word)):
        refused = daemon.run(*command, check=(2,))
        assert "claude, codex, gemini, opencode, shell" in refused.stderr
