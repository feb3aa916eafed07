"""The harness for end-to-end tests with a real agent: the scripted model, and Claude Code as host and as worker."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox, PlainLaunch
from support import claude_code, note_server
from support.model_stub import Call, ModelStub, Results, Say, Script

pytestmark = pytest.mark.anyio

TOOLS = [{"name": "Read"}, {"name": "mcp__notes__add"}, {"name": "mcp__notes__read"}]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home directory."""
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A directory with one file to mend."""
    path = tmp_path / "workspace"
    path.mkdir()
    (path / "greeting.txt").write_text("helo world\n")
    return path


def edit_script(workspace: Path) -> Script:
    greeting = str(workspace / "greeting.txt")
    return Script(
        [
            Call("Read", {"file_path": greeting}),
            Call("Edit", {"file_path": greeting, "old_string": "helo", "new_string": "hello"}),
            Call("Write", {"file_path": str(workspace / "notes.md"), "content": "Mended the greeting.\n"}),
            Say("The greeting is right now."),
        ],
        when="Mend the greeting",
    )


def assert_mended(workspace: Path) -> None:
    assert (workspace / "greeting.txt").read_text() == "hello world\n"
    assert (workspace / "notes.md").read_text() == "Mended the greeting.\n"
    assert sorted(path.name for path in workspace.iterdir()) == ["greeting.txt", "notes.md"]


async def test_claude_code_is_the_pinned_version(home: Path, tmp_path: Path) -> None:
    run = await claude_code.run(
        [str(claude_code.program()), "--version"], "", cwd=tmp_path, env=claude_code.environment(home, "")
    )
    assert run.stdout.split()[0] == claude_code.VERSION


async def test_claude_code_as_host_plays_a_script_of_dependent_calls(home: Path, tmp_path: Path) -> None:
    """The second call's argument comes out of the first one's result, as a delegation id does."""
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps(claude_code.mcp_config("notes", [sys.executable, note_server.__file__])))
    script = Script(
        [
            Call("notes__add", {"text": "remember me"}),
            Call("notes__read", lambda results: {"note_id": results[-1].json()["note_id"]}),
            Call("notes__read", {"note_id": "note-99"}),
            Say(lambda results: f"It says: {results[1].json()['text']}"),
        ]
    )
    with ModelStub([script]) as model:
        run = await claude_code.run(
            claude_code.host_argv(config, ["mcp__notes__add", "mcp__notes__read"]),
            "Keep a note, then read it.",
            cwd=tmp_path,
            env=claude_code.environment(home, model.url),
        )
    assert model.faults == []
    assert run.exit_code == 0, run.stderr
    assert run.json()["result"] == "It says: remember me"
    assert [(result.tool, result.is_error) for result in model.results] == [
        ("mcp__notes__add", False),
        ("mcp__notes__read", False),
        ("mcp__notes__read", True),
    ]


async def test_claude_code_as_host_may_use_only_the_tools_it_is_allowed(home: Path, tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps(claude_code.mcp_config("notes", [sys.executable, note_server.__file__])))
    script = Script([Call("notes__add", {"text": "x"}), Say("over")])
    with ModelStub([script]) as model:
        await claude_code.run(
            claude_code.host_argv(config, ["mcp__notes__read"]),
            "Keep a note.",
            cwd=tmp_path,
            env=claude_code.environment(home, model.url),
        )
    assert [result.is_error for result in model.results] == [True]


async def test_claude_code_as_worker_edits_with_its_own_tools(home: Path, workspace: Path) -> None:
    with ModelStub([edit_script(workspace)]) as model:
        run = await claude_code.run(
            claude_code.worker_argv(),
            "Mend the greeting.",
            cwd=workspace,
            env=claude_code.environment(home, model.url),
        )
    assert model.faults == []
    assert run.exit_code == 0, run.stderr
    assert run.stdout.strip() == "The greeting is right now."
    assert [result.is_error for result in model.results] == [False, False, False]
    assert_mended(workspace)


async def test_claude_code_as_worker_runs_in_the_sandbox(home: Path, workspace: Path) -> None:
    """On an empty root it needs its own executable, a writable home, the workspace, and the network to its model."""
    program = claude_code.program()
    launch = PlainLaunch(
        argv=claude_code.worker_argv(),
        cwd=workspace,
        readable=[program.parent],
        writable=[workspace, home],
        allow_network=True,
    )
    with ModelStub([edit_script(workspace)]) as model:
        run = await claude_code.run(
            BubblewrapSandbox().wrap(launch),
            "Mend the greeting.",
            cwd=workspace,
            env=claude_code.environment(home, model.url),
        )
    assert model.faults == []
    assert run.exit_code == 0, run.stderr
    assert run.stdout.strip() == "The greeting is right now."
    assert_mended(workspace)


async def test_the_sandboxed_worker_can_not_read_or_write_elsewhere(
    home: Path, workspace: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2")
    script = Script(
        [
            Call("Read", {"file_path": str(secret)}),
            Call("Bash", {"command": f"cat {secret}; echo x > {tmp_path}/planted", "description": "look around"}),
            Say("over"),
        ]
    )
    launch = PlainLaunch(
        argv=claude_code.worker_argv(tools=[*claude_code.EDITING_TOOLS, "Bash"]),
        cwd=workspace,
        readable=[claude_code.program().parent],
        writable=[workspace, home],
        allow_network=True,
    )
    with ModelStub([script]) as model:
        await claude_code.run(
            BubblewrapSandbox().wrap(launch), "Look.", cwd=workspace, env=claude_code.environment(home, model.url)
        )
    assert model.faults == []
    assert len(model.results) == 2
    assert "hunter2" not in "".join(result.text for result in model.results)
    assert not (tmp_path / "planted").exists()


async def test_what_the_workspace_configures_does_not_act(home: Path, workspace: Path, tmp_path: Path) -> None:
    """Hooks and MCP servers of a lent directory are the lender's, and would run at the executor."""
    planted = workspace / "planted"
    hook = {"hooks": [{"type": "command", "command": f"touch {planted}"}]}
    (workspace / ".claude").mkdir()
    (workspace / ".claude" / "settings.json").write_text(
        json.dumps({"hooks": {"SessionStart": [hook], "UserPromptSubmit": [hook]}, "enableAllProjectMcpServers": True})
    )
    (workspace / ".mcp.json").write_text(json.dumps(claude_code.mcp_config("evil", ["touch", str(planted)])))
    with ModelStub([Script([Say("over")])]) as model:
        run = await claude_code.run(
            claude_code.worker_argv(), "Hello.", cwd=workspace, env=claude_code.environment(home, model.url)
        )
    assert run.exit_code == 0, run.stderr
    assert not planted.exists()
    assert not any("evil" in tool for tool in model.requests[0].tools)


def messages_request(stub: ModelStub, messages: list[dict[str, Any]], *, stream: bool = False) -> httpx.Response:
    body = {"model": "m", "stream": stream, "tools": TOOLS, "messages": messages}
    with httpx.Client(trust_env=False) as client:
        return client.post(f"{stub.url}/v1/messages?beta=true", json=body)


def turn(call: dict[str, Any], result: str, *, is_error: bool = False) -> list[dict[str, Any]]:
    answer = {"type": "tool_result", "tool_use_id": call["id"], "content": result, "is_error": is_error}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]


def test_the_stub_plays_a_conversation_without_streaming() -> None:
    def after(results: Results) -> dict[str, str]:
        return {"note_id": results[-1].json()["note_id"]}

    messages: list[dict[str, Any]] = [{"role": "user", "content": "please"}]
    with ModelStub([Script([Call("add", {"text": "x"}), Call("read", after), Say("end")])]) as stub:
        first = messages_request(stub, messages).json()
        assert first["stop_reason"] == "tool_use"
        assert first["content"] == [
            {"type": "tool_use", "id": "toolu_0001", "name": "mcp__notes__add", "input": {"text": "x"}}
        ]
        messages += turn(first["content"][0], '{"note_id": "note-1"}')
        second = messages_request(stub, messages).json()
        assert second["content"][0]["input"] == {"note_id": "note-1"}
        assert messages_request(stub, messages).json() == second, "a retry gets the same answer"
        messages += turn(second["content"][0], "gone", is_error=True)
        last = messages_request(stub, messages).json()
    assert last["stop_reason"] == "end_turn"
    assert last["content"] == [{"type": "text", "text": "end"}]
    assert [(result.text, result.is_error) for result in stub.results] == [
        ('{"note_id": "note-1"}', False),
        ("gone", True),
    ]
    assert len(stub.requests) == 4
    assert stub.faults == []


@pytest.mark.parametrize("step", [Call("add", {"text": "caf\u00e9"}), Say("caf\u00e9"), Say("")])
def test_the_stub_streams_the_same_message_in_pieces(step: Call | Say) -> None:
    messages = [{"role": "user", "content": "please"}]
    with ModelStub([Script([step])]) as stub:
        (whole,) = messages_request(stub, messages).json()["content"]
        streamed = messages_request(stub, messages, stream=True)
    assert streamed.headers["content-type"] == "text/event-stream"
    events = [json.loads(line.removeprefix("data: ")) for line in streamed.text.splitlines() if line.startswith("data")]
    assert [event["type"] for event in events] == [
        *("message_start", "content_block_start", "content_block_delta", "content_block_delta"),
        *("content_block_stop", "message_delta", "message_stop"),
    ]
    pieces = "".join(e["delta"].get("text", e["delta"].get("partial_json")) for e in events[2:4])
    assert (pieces if whole["type"] == "text" else json.loads(pieces)) == whole.get("text", whole.get("input"))


def test_the_stub_tells_conversations_apart() -> None:
    with ModelStub([Script([Say("one")], when="first"), Script([Say("two")], when="second")]) as stub:
        answers = [
            messages_request(stub, [{"role": "user", "content": prompt}]).json()["content"][0]["text"]
            for prompt in ("the second", "the first", "the third")
        ]
    assert answers[:2] == ["two", "one"]
    assert "FAULT" in answers[2]
    assert len(stub.faults) == 1


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([], id="script at its end"),
        pytest.param([Call("no_such_tool", {})], id="tool not offered"),
        pytest.param([Call("add", lambda results: {"id": results[0].text})], id="arguments that cannot be made"),
    ],
)
def test_the_stub_tells_what_went_wrong_in_a_script(steps: list[Call]) -> None:
    with ModelStub([Script(steps)]) as stub:
        answer = messages_request(stub, [{"role": "user", "content": "x"}]).json()
    assert answer["stop_reason"] == "end_turn"
    assert answer["content"][0]["text"].startswith("MODEL STUB FAULT")
    assert len(stub.faults) == 1
