"""``sublet replay`` on real daemons: whatever ended badly is decided so again, by the rules of then (SuperAgent 12)."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sublet.daemon.api.daemon import RELOAD
from sublet.daemon.api.events import READ_EVENTS, ReadEvents
from sublet.daemon.api.operation import Nothing
from sublet.protocol.events import Event, EventKind
from support.chat_process import Step, chat_stub
from support.daemons import SHELL_AGENT, SUBLET, Daemon, wait_for
from support.leases import ask

pytestmark = pytest.mark.timeout(240)

SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
STUBBORN = {"id": "stubborn", "provider": {"type": "command", "argv": ["sh", "-c", "cat >/dev/null; echo hunter2"]}}
SAYS = """cat >/dev/null; echo '{"count": "3", "pin": "hunter2"}'"""
COUNTER = {"id": "counter", "provider": {"type": "command", "argv": ["sh", "-c", SAYS]}}
AGENTS_ASK: dict[str, Any] = {
    "id": "agents-ask",
    "effect": "allow",
    "action": ["agent.ask", "agent.dispatch"],
    "subject": {"kind": "agent"},
}


class Recorded:
    """A daemon whose sessions are replayed."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    def ask(self, *arguments: str) -> Any:
        return self.daemon.json("ask", *arguments, check=None)

    def events(self, session: str | None = None) -> list[Event]:
        return ask(
            self.daemon, lambda client: client.call(READ_EVENTS, ReadEvents(cursor=0, session_id=session, limit=500))
        ).events

    def replay(self, session: str, *options: str, check: int = 0) -> Any:
        return self.daemon.json("replay", session, *options, check=(check,))

    def policy(self, *rules: dict[str, Any]) -> None:
        file = self.daemon.home / "config" / "policy.json"
        file.write_text(json.dumps({"version": 1, "global": [AGENTS_ASK, *rules]}))
        ask(self.daemon, lambda client: client.call(RELOAD, Nothing()))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    base = tmp_path_factory.mktemp("r")
    steps: list[Step] = [{"calls": [["file_delete", {"path": "a"}]]}, {"say": "no"}]
    with chat_stub(base / "c", steps) as stub:
        model = {**stub.agent(), "id": "model", "tools": {"blacklist": ["file.delete"]}}
        daemon = Daemon(base / "a")
        config = daemon.home / "config"
        config.mkdir(mode=0o700, parents=True)
        (config / "policy.json").write_text(json.dumps({"version": 1, "global": [AGENTS_ASK]}))
        try:
            shell = {**SHELL_AGENT, "id": "shell"}
            yield Recorded(daemon.up("--unsandboxed", agent={"agents": [shell, STUBBORN, COUNTER, model]}))
        finally:
            daemon.down()


@pytest.fixture
def schema(tmp_path: Path) -> str:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))
    return str(file)


def told(found: Any) -> list[tuple[str, str]]:
    return [(one["kind"], one["result"]) for one in found["steps"]]


def test_a_denied_tool(recorded: Recorded) -> None:
    session = recorded.ask("@model delete it")["fingerSessionId"]
    found = recorded.replay(session)
    assert found["equal"]
    [denied] = [one for one in found["steps"] if one["kind"] == "policy_rejected"]
    assert (denied["replayed"]["decision"], denied["replayed"]["code"]) == ("deny", "POLICY_DENIED")


@pytest.mark.parametrize("end", ["reject", "ask_human"])
def test_an_answer_that_never_passes(recorded: Recorded, schema: str, end: str) -> None:
    asked = recorded.ask("@stubborn how many?", "--schema", schema, "--on-failure", end)
    assert asked["routeDecision"] == end
    found = recorded.replay(asked["fingerSessionId"])
    failed = [one["replayed"] for one in found["steps"] if one["kind"] == "guardrail_failed"]
    assert failed == [{"class": "no_json", "then": then} for then in ("retry", "retry", end)]
    [result] = [one for one in found["steps"] if one["kind"] == "dispatch_result"]
    assert (result["result"], result["replayed"]) == ("equal", {"code": "GUARDRAIL_FAILED"})
    if end == "ask_human":
        # A person says who is to do it then; from her answer the route is decided again as well.
        recorded.ask("--session", asked["fingerSessionId"], "--answer", "@shell echo 3")
        assert recorded.replay(asked["fingerSessionId"])["equal"]


def test_an_answer_that_was_mended_and_masked(recorded: Recorded, schema: str) -> None:
    asked = recorded.ask("@counter how many?", "--schema", schema, "--mask", "/count")
    assert asked["structured"] == {"count": 3}
    found = recorded.replay(asked["fingerSessionId"])
    assert (found["equal"], found["steps"][-1]["replayed"]["class"]) == (True, "passed")
    # What the mask keeps back is in no event and in nothing that is kept for them.
    wrong = recorded.ask("@stubborn how many?", "--schema", schema, "--mask", "/count", "--on-failure", "ask_human")
    found = recorded.replay(wrong["fingerSessionId"], check=1)
    assert ("guardrail_failed", "not_replayable") in told(found)
    events = recorded.events(asked["fingerSessionId"]) + recorded.events(wrong["fingerSessionId"])
    assert "hunter2" not in " ".join(one.model_dump_json() for one in events)


def test_a_loop_that_was_refused(recorded: Recorded) -> None:
    home = f"export SUBLET_HOME={shlex.quote(str(recorded.daemon.home))}; {shlex.quote(str(SUBLET))}"
    outer = recorded.ask("--agent", "shell", f"{home} ask --agent shell --json 'echo never'; true")
    assert "LOOP_REFUSED" in outer["result"]
    [refused] = [one for one in recorded.events() if one.data.get("rule") == "LOOP_REFUSED"]
    inner = refused.keys.finger_session_id
    assert inner not in (None, outer["fingerSessionId"])
    found = recorded.replay(str(inner))
    assert found["steps"][-1]["replayed"] == {"code": "LOOP_REFUSED"}
    assert recorded.replay(outer["fingerSessionId"])["equal"]


def test_a_daemon_that_was_killed_in_the_middle(recorded: Recorded) -> None:
    session = recorded.ask("@shell echo before")["fingerSessionId"]
    cut_off = threading.Thread(target=recorded.ask, args=("--session", session, "@shell sleep 600"))
    cut_off.start()

    def sent() -> bool:
        return sum(one.kind is EventKind.DISPATCH_SENT for one in recorded.events(session)) == 2

    wait_for(sent, 60, "the second call")
    recorded.daemon.kill()
    cut_off.join(60)
    recorded.daemon.up("--unsandboxed")
    found = recorded.replay(session)
    notes = [one["note"] for one in found["steps"] if one["kind"] == "dispatch_sent"]
    assert notes == ["", "nothing says how it ended"]
    assert recorded.ask("--session", session, "@shell echo after")["result"] == "after"
    assert recorded.replay(session)["equal"]


def test_another_policy_changes_what_would_be_decided_and_not_what_was(recorded: Recorded) -> None:
    session = recorded.ask("@shell echo hello")["fingerSessionId"]
    before = recorded.replay(session)
    assert before["rules"] == "recorded"
    assert recorded.replay(session, "--with-current")["equal"]
    deny = {"id": "no-shell", "effect": "deny", "action": "agent.dispatch", "resource": "shell"}
    recorded.policy(deny)
    try:
        assert recorded.replay(session) == before
        found = recorded.replay(session, "--with-current", check=1)
        assert found["rules"] == "current"
        assert told(found) == [("route_decided", "different"), ("dispatch_sent", "different")]
        assert found["steps"][1]["replayed"]["rule"] == "no-shell"
        recorded.daemon.run("sessions", "delete", session)
        assert recorded.replay(session)["steps"] == before["steps"]
    finally:
        recorded.policy()


def test_what_nothing_is_recorded_of(recorded: Recorded) -> None:
    assert recorded.replay("ses_" + "0" * 26, check=1)["error"]["code"] == "NOT_FOUND"
