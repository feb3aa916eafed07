"""What agents may do, told and recorded alike whatever provider they have (SuperAgent 6, 9, 12; docs/acceptance.md)."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sublet.daemon.api.events import READ_EVENTS, ReadEvents
from sublet.protocol.events import Event, EventKind
from support import acp_agent
from support.chat_process import ChatStub, Step, chat_stub
from support.daemons import Daemon, wait_for
from support.leases import ask
from support.terminal import typed

pytestmark = pytest.mark.timeout(300)

SECRET = "correct horse battery"
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or "python3"
WRITE: Step = {"calls": [["file_write", {"path": "written", "content": "by the agent"}]]}
SCRIPT = """
prompt=$(cat)
case $prompt in
*fail*) echo "I broke it."; exit 3 ;;
*) echo "There are three." ;;
esac
"""
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
OF_REQUEST = {"fingerSessionId", "requestId"}
ROUTED = {*OF_REQUEST, "routeDecision"}
OF_AGENT = {*ROUTED, "agentId", "causationId"}
KEYS: dict[str, set[str]] = {
    "session_created": OF_REQUEST,
    "session_bound": {*OF_AGENT, "providerSessionId"},
    "session_resumed": {*OF_AGENT, "providerSessionId"},
    "route_decided": ROUTED,
    "dispatch_sent": OF_AGENT,
    "dispatch_result": OF_AGENT,
    "tool_call": OF_AGENT,
    "tool_result": OF_AGENT,
    "tool_error": OF_AGENT,
    "ask_human": {*ROUTED, "causationId"},
    "approval_required": OF_AGENT,
    "approval_decided": OF_AGENT,
    "guardrail_failed": OF_AGENT,
    "policy_rejected": OF_AGENT,
}
"""The events of SuperAgent 9.1, and what follows from them, each with the keys of 9.2 that are known by then."""


@dataclass(frozen=True)
class Governed:
    """A daemon with agents of several providers, and the endpoint of the one that is a model."""

    daemon: Daemon
    stub: ChatStub

    def agents(self, **tools: Sequence[str]) -> None:
        """Have the model and the ACP agent be held to these lists, and wait until they are."""
        before = len(self.events())
        (self.daemon.home / "config" / "agent.json").write_text(json.dumps(agents(self.stub, **tools)))
        wait_for(
            lambda: any(one.kind is EventKind.CONFIG_RELOADED for one in self.events()[before:]),
            15,
            "the file in force",
        )

    def ask(self, *arguments: str, check: Sequence[int] | None = (0,)) -> Any:
        return self.daemon.json("ask", *arguments, check=check, timeout=150)

    def events(self, session: str | None = None) -> list[Event]:
        return ask(
            self.daemon, lambda client: client.call(READ_EVENTS, ReadEvents(cursor=0, session_id=session, limit=500))
        ).events

    def written(self, agent: str) -> bool:
        """Have an agent try to write a file, and tell whether it was let."""
        found = self.ask("--agent", agent, "write it")
        if agent == "acp":
            assert found["result"] in ("written", "not written: no"), found
            return str(found["result"]) == "written"
        return not self.stub.results()[-1].startswith("Refused by policy")

    def make_approver(self) -> None:
        answers = [("New passphrase: ", SECRET), ("Once more: ", SECRET)]
        status, shown = typed(self.daemon, "approver", "init", answers=answers)
        assert status == 0, shown


def agents(stub: ChatStub, **tools: Sequence[str]) -> dict[str, Any]:
    acp = {"type": "acp", "argv": [PYTHON, acp_agent.__file__, "write"]}
    readable = [str(Path(acp_agent.__file__).parent)]
    found = [
        {**stub.agent(), "id": "model", "tools": tools},
        {"id": "acp", "provider": acp, "sandbox": {"readable": readable}, "tools": tools},
        {"id": "program", "provider": {"type": "command", "argv": ["sh", "-c", SCRIPT]}},
        {"id": "team", "provider": {"type": "super", "workers": ["inner"]}},
        {"id": "inner", "provider": {"type": "super", "workers": ["program"]}},
    ]
    return {"agents": found}


@contextmanager
def running(base: Path, script: Sequence[Step], **tools: Sequence[str]) -> Iterator[Governed]:
    with chat_stub(base / "c", script) as stub:
        daemon = Daemon(base / "a", environ={"PYTHONDONTWRITEBYTECODE": "1"})
        config = daemon.home / "config"
        config.mkdir(mode=0o700, parents=True)
        (config / "config.json").write_text(json.dumps({"supervisor": {"max_depth": 1}}))
        (config / "agent.json").write_text(json.dumps(agents(stub, **tools)))
        try:
            yield Governed(daemon.up(), stub)
        finally:
            daemon.down()


def test_lists_of_tools_and_grants_hold_alike_for_every_provider_that_asks(tmp_path: Path) -> None:
    """SuperAgent 12: lists and tokens are in force at run time, for all alike, and agent.json without a restart."""
    with running(tmp_path, [WRITE, {"say": "done"}] * 20) as governed:
        pid = governed.daemon.pid
        for lists, may in (
            ({"whitelist": ["file.*"], "blacklist": ["file.write"]}, False),
            ({"whitelist": ["file.*"]}, True),
            ({"whitelist": ["file.read"]}, False),
            ({"authorizationRequired": ["file.write"]}, False),
        ):
            governed.agents(**lists)
            assert [governed.written(agent) for agent in ("model", "acp")] == [may, may], lists
        governed.make_approver()
        for agent in ("model", "acp"):
            options = ["--agent", agent, "--tool", "file.write", "--any-arguments", "--max-uses", "1"]
            status, shown = typed(governed.daemon, "grants", "create", *options, answers=[("Passphrase: ", SECRET)])
            assert status == 0, shown
            assert governed.written(agent)
        uses = governed.daemon.json("grants", "list", "--all")["grants"]
        assert {(one["agent"], one["state"]) for one in uses} == {("model", "used up"), ("acp", "used up")}
        assert governed.daemon.json("status")["pid"] == pid


def test_every_event_is_told_with_its_keys_and_every_failure_replays_to_its_class(tmp_path: Path) -> None:
    """SuperAgent 9 and 12, in one session that meets all of them; and again after a kill, and under another policy."""
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    script: list[Step] = [
        WRITE,
        {"say": "done"},
        {"calls": [["file_read", {"path": "absent"}], ["file_delete", {"path": "written"}]]},
        {"say": "no"},
        {"calls": [["shell_exec", {"command": "true"}]]},
        {"say": "never mind"},
    ]
    lists = {"blacklist": ["file.delete"], "authorizationRequired": ["shell.exec"]}
    with running(tmp_path, script, **lists) as governed:
        governed.make_approver()
        session = str(governed.ask("@model write it")["fingerSessionId"])

        def further(*arguments: str) -> Any:
            return governed.ask("--session", session, *arguments, check=None)

        further("@model go on")
        waits = threading.Thread(target=further, args=("@model run it",))
        waits.start()
        asked = wait_for(lambda: governed.daemon.json("approvals")["approvals"], 40, "a question")
        governed.daemon.run("approvals", "deny", asked[0]["id"])
        waits.join(150)
        assert further("@program fail")["error"]["code"] == "TASK_FAILED"
        assert further("@team work")["error"]["code"] == "DEPTH_REFUSED"
        assert further("/hub nowhere work")["routeDecision"] == "reject"
        unguarded = further("@program count", "--schema", str(schema), "--on-failure", "ask_human")
        assert unguarded["routeDecision"] == "ask_human"

        events = governed.events(session)
        assert {str(one.kind) for one in events} >= set(KEYS)
        for one in events:
            keys = one.keys.model_dump(by_alias=True, exclude_none=True)
            assert keys.keys() >= KEYS.get(str(one.kind), OF_REQUEST), one
            assert not keys.keys() & one.data.keys(), one
            assert (keys["fingerSessionId"], keys.get("causationId", 0) < one.seq) == (session, True)

        def replayed(check: int, *options: str) -> list[Any]:
            found = governed.daemon.json("replay", session, *options, check=(check,))["steps"]
            assert not any(one["out_of_order"] or one["copies"] or one["missing"] for one in found)
            return list(found)

        steps = replayed(0)
        assert {one["result"] for one in steps} == {"equal"}, steps
        classes = {str(name) for one in steps for name in (one["recorded"].get("code"), one["recorded"].get("class"))}
        assert classes >= {"POLICY_DENIED", "DEPTH_REFUSED", "TASK_FAILED", "GUARDRAIL_FAILED", "no_json"}
        governed.daemon.kill()
        governed.daemon.up()
        assert replayed(0) == steps
        governed.agents(authorizationRequired=["shell.exec"])
        # What was decided is decided so again by the rules of then; what those of now would say is another question.
        assert replayed(0) == steps
        [changed] = [one for one in replayed(1, "--with-current") if one["result"] == "different"]
        assert (changed["kind"], changed["recorded"]["decision"]) == ("policy_rejected", "deny")
        assert (changed["replayed"]["decision"], changed["replayed"]["code"]) == ("allow", None)
