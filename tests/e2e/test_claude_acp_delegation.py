"""The real Claude Code as worker by the Agent Client Protocol, in real delegations between two daemons, offline."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from sublet.daemon.api.events import READ_EVENTS, ReadEvents
from sublet.protocol.events import EventKind
from support import claude_code
from support.daemons import Daemon, pair
from support.leases import ask, begin, delegate, finish, tree, wait_state
from support.model_stub import Call, ModelStub, Results, Say, Script

pytestmark = pytest.mark.timeout(170)

AGENT = {
    "id": "claude",
    "role": "executor",
    "provider": {"type": "acp", "preset": "claude"},
    "tools": {"blacklist": ["shell.exec"]},
}
WRITE, AGAIN, RUN = "Write the notes.", "Is that all of it?", "Run the command."
OUTSIDE = Path("/srv/sublet-elsewhere.txt")


def told(worker: Daemon, kind: EventKind) -> list[tuple[Any, Any]]:
    """Return tool and paths of every event of a kind."""
    found = ask(worker, lambda client: client.call(READ_EVENTS, ReadEvents(cursor=0, limit=500))).events
    return [(event.data["tool"], event.data.get("paths")) for event in found if event.kind is kind]


def test_policy_decides_on_all_that_claude_asks_for(tmp_path: Path) -> None:
    """What it allows is done, what it denies is not, what is outside fails; a follow-up goes on with the session."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "kept.txt").write_text("left alone\n")
    asked_again = threading.Event()

    def here() -> str:
        (mount,) = (tmp_path / "b" / "state" / "mounts").iterdir()
        return f"{mount}/workspace"

    def inside(_results: Results) -> dict[str, Any]:
        assert asked_again.wait(60), "nobody asked again"
        return {"file_path": f"{here()}/notes.md", "content": "by Claude\n"}

    writing = Script(
        [
            Call("Write", inside),
            Call("Write", {"file_path": str(OUTSIDE), "content": "no\n"}),
            Say(lambda results: " ".join("refused" if one.is_error else "written" for one in results)),
        ],
        when=WRITE,
    )
    running = Script([Call("Bash", {"command": "touch ran", "description": "run it"}), Say("tried")], when=RUN)
    with ModelStub([writing, running]) as model:
        environ = {
            "PATH": f"{claude_code.acp_program().parent}:/usr/local/bin:/usr/bin:/bin",
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "dummy",
        }
        lender, worker = Daemon(tmp_path / "a"), Daemon(tmp_path / "b", environ=environ)
        try:
            lender.up()
            worker.up(agent=AGENT)
            pair(lender, worker)
            delegation = begin(lender, project, WRITE)
            wait_state(lender, delegation, "running")
            lender.json("say", delegation, AGAIN)
            asked_again.set()
            wrote = finish(lender, delegation)
            ran = delegate(lender, project, RUN)
            allowed, refused = told(worker, EventKind.TOOL_CALL), told(worker, EventKind.POLICY_REJECTED)
        finally:
            lender.down()
            worker.down()
    assert model.faults == [], worker.log()
    assert str(wrote.state) == "completed", wrote
    assert wrote.result is not None
    assert wrote.result.final_summary == "written refused"
    assert tree(project) == {"kept.txt": b"left alone\n", "notes.md": b"by Claude\n"}
    assert not OUTSIDE.exists()
    assert ("file.write", ["workspace/notes.md"]) in allowed
    assert "shell.exec" in [tool for tool, _ in refused]
    assert "shell.exec" not in [tool for tool, _ in allowed]
    assert ran["state"] in ("completed", "error"), ran
    conversations = [str(request.messages) for request in model.requests]
    assert any(WRITE in one and AGAIN in one for one in conversations), "the follow-up began another session"
    assert worker.mounts == []
