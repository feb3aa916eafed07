"""Two real Claude Codes on two daemons talk while one works on the other's delegation, offline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support import claude_code
from support.daemons import SUBLET, Daemon, pair
from support.model_stub import Call, Choose, ModelStub, Results, Say, Script

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

AGENT = {
    "id": "claude",
    "role": "executor",
    "provider": {"type": "acp", "preset": "claude"},
    "tools": {"whitelist": ["file.*", "sublet.send_message", "sublet.watch"]},
}
PROMPT = "Write the greeting that you are told."
QUESTION, ANSWER, THANKS = "Which greeting shall it be?", "Good morning, Bob.", "It is written."
TOOLS = ("send_message", "watch")
MAX_STEPS = 60
SECONDS = 150.0


def heard(results: Results) -> list[dict[str, Any]]:
    """Return every event that the host has heard."""
    return [event for one in results if one.tool.endswith("__watch") for event in one.json().get("events", [])]


def text_of(event: dict[str, Any]) -> str:
    return str(event.get("message", {}).get("from_peer", {}).get("text", ""))


def host_step(results: Results) -> Call | Say:
    """Watch, answer the question once, and watch on until the work is done and was spoken of."""
    events = heard(results)
    question = next((event for event in events if text_of(event) == QUESTION), None)
    answered = any(one.tool.endswith("__send_message") for one in results)
    if question is not None and not answered:
        where, ref = question["room_id"], question["message"]["ref_id"]
        return Call("sublet__send_message", {"to": where, "message": ANSWER, "reply_to": ref})
    if any(event.get("state") == "completed" for event in events) and any(THANKS in text_of(one) for one in events):
        return Say("They said: " + " / ".join(filter(None, map(text_of, events))))
    cursor = next((one.json()["next_cursor"] for one in reversed(results) if one.tool.endswith("__watch")), None)
    return Call("sublet__watch", {"wait_seconds": 40, **({"cursor": cursor} if cursor else {})})


def worker_step(here: Path) -> Choose:
    """Ask, watch until the other Claude has answered, write it down, and say so."""

    def step(results: Results) -> Call | Say:
        talked = [json.loads(one.text.partition("\n")[2]) for one in results if one.tool.endswith("__watch")]
        said = [message for page in talked for message in page["messages"]]
        answer = next((one["text"] for one in said if one["author"].startswith("@mcp:")), None)
        sent = sum(one.tool.endswith("__send_message") for one in results)
        if not results:
            # It shows its model tools of MCP servers once they are asked for.
            return Call("ToolSearch", {"query": f"select:{','.join(f'mcp__sublet__{name}' for name in TOOLS)}"})
        if not sent:
            return Call("sublet__send_message", {"message": QUESTION})
        if answer is None:
            return Call("sublet__watch", {"cursor": talked[-1]["cursor"] if talked else 0, "wait_seconds": 30})
        if not any(one.tool == "Write" for one in results):
            (mount,) = (here / "state" / "mounts").iterdir()
            return Call("Write", {"file_path": f"{mount}/workspace/greeting.txt", "content": answer + "\n"})
        if sent == 1:
            return Call("sublet__send_message", {"message": THANKS})
        return Say("Done as told.")

    return Choose(step)


async def test_two_claude_codes_talk_while_one_works_for_the_other(tmp_path: Path) -> None:
    claude_code.program()
    project, config, home = tmp_path / "project", tmp_path / "mcp.json", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    lending = Script(
        [
            Call("sublet__delegate", {"workspace_dir": str(project), "peer": "bob", "prompt": PROMPT}),
            *[Choose(host_step)] * MAX_STEPS,
        ],
        when="Ask bob",
    )
    working = Script([worker_step(tmp_path / "b")] * MAX_STEPS, when=PROMPT)
    with ModelStub([lending]) as host_model, ModelStub([working]) as worker_model:
        environ = {
            "PATH": f"{claude_code.acp_program().parent}:/usr/local/bin:/usr/bin:/bin",
            "ANTHROPIC_BASE_URL": worker_model.url,
            "ANTHROPIC_API_KEY": "dummy",
        }
        lender, worker = Daemon(tmp_path / "a"), Daemon(tmp_path / "b", environ=environ)
        try:
            lender.up()
            worker.up(agent=AGENT)
            pair(lender, worker)
            for daemon in (lender, worker):
                daemon.json("whoami")
            server = claude_code.mcp_config("sublet", [str(SUBLET), "mcp"], {"SUBLET_HOME": str(lender.home)})
            config.write_text(json.dumps(server))
            tools = [f"mcp__sublet__{name}" for name in ("delegate", "send_message", "watch")]
            run = await claude_code.run(
                claude_code.host_argv(config, tools),
                "Ask bob to write the greeting, and tell him which.",
                cwd=project,
                env=claude_code.environment(home, host_model.url),
                seconds=SECONDS,
            )
            (delegation,) = lender.json("ls", "--all")["delegations"]
            read = [(one["author"], one["body"]) for one in lender.json("read", delegation["room_id"])]
        finally:
            lender.down()
            worker.down()
    assert (host_model.faults, worker_model.faults) == ([], []), worker.log()
    assert run.exit_code == 0, run.stderr
    result = str(run.json()["result"])
    assert QUESTION in result
    assert THANKS in result
    assert not any(one.is_error for one in (*host_model.results, *worker_model.results))
    assert (project / "greeting.txt").read_text() == f"{ANSWER}\n"
    host, agent = (next(one for one, body in read if body == said) for said in (ANSWER, QUESTION))
    assert host.startswith("@mcp:")
    assert agent.startswith("@claude:")
    assert [body for _, body in read if body in (QUESTION, ANSWER, THANKS)] == [QUESTION, ANSWER, THANKS]
    assert worker.mounts == []
