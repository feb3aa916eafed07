"""An ACP agent on the standard library alone, good or bad: ``python acp_agent.py MODE``.

It reads JSON-RPC lines and answers as an agent would, but for one thing each mode does wrong. ``{cwd}`` in what it does
is the directory of its session.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SESSION = "ses-1"
NUMBERS = itertools.count(1)
OPTIONS = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "once", "name": "Once", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(body: dict[str, Any], session: str = SESSION) -> None:
    send({"method": "session/update", "params": {"sessionId": session, "update": body}})


def say(text: str, session: str = SESSION) -> None:
    update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}, session)


def ask(call: dict[str, Any], request_id: object = "perm-1", options: list[dict[str, Any]] = OPTIONS) -> None:
    params = {"sessionId": SESSION, "toolCall": call, "options": options}
    send({"id": request_id, "method": "session/request_permission", "params": params})


def answer_to(request_id: object) -> dict[str, Any]:
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        if message.get("id") == request_id and "method" not in message:
            return message
    sys.exit(0)


def write(cwd: Path, options: list[dict[str, Any]] = OPTIONS) -> str:
    """Ask to write a file, and write it if that is allowed once."""
    target = cwd / "written"
    call = {"toolCallId": "c1", "title": "Write written", "kind": "edit", "rawInput": {"file_path": str(target)}}
    update({"sessionUpdate": "tool_call", "status": "pending", **call})
    ask(call, options=options)
    outcome = answer_to("perm-1")["result"]["outcome"]
    if outcome.get("optionId") == "once":
        target.write_text("by the agent")
        update({"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed"})
        return "written"
    return f"not written: {outcome.get('optionId', outcome['outcome'])}"


def call(method: str, **params: Any) -> Any:
    """Ask the client for something, and return the result or the code of the error."""
    request_id = f"call-{next(NUMBERS)}"
    send({"id": request_id, "method": method, "params": {"sessionId": SESSION, **params}})
    answer = answer_to(request_id)
    return answer["result"] if "result" in answer else answer["error"]["message"]


def terminal(cwd: Path, command: str, **more: Any) -> str:
    """Run a command to its end, and tell how it ended and what it printed."""
    made = call("terminal/create", command=command, cwd=str(cwd), **more)
    if isinstance(made, str):
        return made
    where = {"terminalId": made["terminalId"]}
    ended = call("terminal/wait_for_exit", **where)
    shown = call("terminal/output", **where)
    call("terminal/release", **where)
    gone = call("terminal/output", **where)
    return json.dumps([ended.get("exitCode"), ended.get("signal"), shown["output"], shown["truncated"], gone])


def files(mode: str, cwd: Path) -> str:
    """Have files read and written in every way that the test is about."""
    if mode == "fs":
        (cwd / "lines").write_text("one\ntwo\nthree\n")
        call("fs/write_text_file", path=str(cwd / "made/by us"), content="text")
        part = call("fs/read_text_file", path=str(cwd / "lines"), line=2, limit=1)
        whole = call("fs/read_text_file", path=str(cwd / "made/by us"))
        none = call("fs/read_text_file", path=str(cwd / "none"))
        return json.dumps([part["content"], whole["content"], none])
    (cwd / "out").symlink_to("/etc")
    paths = ["/etc/hostname", f"{cwd}/../../secret", f"{cwd}/out/hostname", f"{cwd}/a\0b"]
    answers = [call("fs/read_text_file", path=path) for path in paths]
    answers += [call("fs/write_text_file", path=path, content="x") for path in paths]
    return json.dumps(answers)


def run_terminals(mode: str, cwd: Path) -> str:
    """Have commands run in every way that the test is about."""
    if mode == "terminal":
        return terminal(
            cwd, "sh", args=["-c", 'echo "$GREETING"; pwd; exit 3'], env=[{"name": "GREETING", "value": "hi"}]
        )
    if mode == "terminal-line":
        return terminal(cwd, "printf %s a=b; ls -A")
    if mode == "terminal-flood":
        return terminal(cwd, "seq 1 10000", outputByteLimit=20)
    if mode == "terminal-places":
        (cwd / "below/deep").mkdir(parents=True)
        (cwd / "link").symlink_to("below/deep")
        places = [cwd / "below", cwd / "link/../below", cwd / "link/.."]
        return json.dumps([json.loads(terminal(place, "pwd -P"))[2] for place in places])
    if mode == "terminal-outside":
        return terminal(Path("/etc"), "true")
    if mode == "terminal-name":
        return terminal(cwd, "true", env=[{"name": "-i", "value": "x"}])
    if mode == "terminal-many":
        made = [call("terminal/create", command="sleep 600") for _ in range(17)]
        return str(made[-1])
    made = call("terminal/create", command="sleep", args=["600"])
    if mode == "terminal-kill":
        call("terminal/kill", terminalId=made["terminalId"])
        return str(call("terminal/wait_for_exit", terminalId=made["terminalId"])["signal"])
    say("left running")
    return ""


def tools(servers: list[dict[str, Any]], calls: list[list[Any]]) -> str:
    """Start each server of the session, and tell its tools and what came of ``calls`` (name and arguments) of them."""
    told: list[Any] = []
    for server in servers:
        environ = {**os.environ, **{one["name"]: one["value"] for one in server["env"]}}
        command = [server["command"], *server["args"]]
        with subprocess.Popen(
            command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            told += _talked(process, server["name"], calls)
            assert process.stdin is not None
            process.stdin.close()
    return json.dumps(told)


def _talked(process: subprocess.Popen[str], name: str, calls: list[list[Any]]) -> list[Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    ids = itertools.count(1)

    def request(method: str, **params: Any) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        request_id = next(ids)
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            answer = json.loads(line)
            if answer.get("id") == request_id:
                return answer["result"] if "result" in answer else answer["error"]
        return "the server ended"

    client = {"name": "acp-agent", "version": "1"}
    request("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n")
    told: list[Any] = [{one["name"]: one["description"] for one in request("tools/list")["tools"]}]
    for number, (tool, arguments) in enumerate(calls):
        ask({"toolCallId": f"t{number}", "title": f"mcp__{name}__{tool}", "kind": "other", "rawInput": arguments})
        outcome = answer_to("perm-1")["result"]["outcome"]
        if outcome.get("optionId") != "once":
            told.append("no permission")
            continue
        result = request("tools/call", name=tool, arguments=arguments)
        told.append([result.get("isError"), "".join(one["text"] for one in result.get("content", []))])
    return told


def works(cwd: Path) -> None:
    """Tell of calls as real agents do: the tool first, and what it is about later, or never."""

    def tell(told: str, number: int, **more: Any) -> None:
        update({"sessionUpdate": told, "toolCallId": f"w{number}", **more})

    tell("tool_call", 1, title="Terminal", kind="execute", status="pending", rawInput={})
    tell("tool_call_update", 1, title="Terminal", rawInput={"command": "make test"})
    tell("tool_call_update", 1, title="`make test`", rawInput={"command": "make test"}, status="completed")
    tell("tool_call", 2, title="Read src/a.py", status="pending", rawInput={"file_path": f"{cwd}/src/a.py"})
    tell("tool_call_update", 2, status="failed")
    tell("tool_call", 3, title="Think", status="pending")
    tell("tool_call_update", 3, status="completed")


def prompt(mode: str, cwd: Path, text: str, servers: list[dict[str, Any]]) -> dict[str, Any]:
    if mode == "write":
        say(write(cwd))
    elif mode == "tools":
        say(tools(servers, json.loads(text)))
    elif mode in ("fs", "fs-outside"):
        say(files(mode, cwd))
    elif mode.startswith("terminal"):
        say(run_terminals(mode, cwd))
    elif mode == "plan":
        for status in ("in_progress", "in_progress", "completed"):
            entry = {"content": "mend it", "priority": "high", "status": status}
            update({"sessionUpdate": "plan", "entries": [entry]})
    elif mode == "works":
        works(cwd)
    elif mode == "only-always":
        say(write(cwd, [OPTIONS[0], OPTIONS[2]]))
    elif mode == "no-options":
        say(write(cwd, []))
    elif mode == "exit":
        say("so far")
        sys.exit(7)
    elif mode == "killed":
        os.kill(os.getpid(), 9)
    elif mode == "leaves-mode":
        update({"sessionUpdate": "current_mode_update", "currentModeId": "yolo"})
        time.sleep(600)
    elif mode == "hang":
        say("thinking")
        time.sleep(600)
    elif mode == "flood":
        while True:
            say("x" * 1000)
    elif mode == "huge-line":
        sys.stdout.write("{" + '"x":"' + "y" * (20 << 20) + '"}\n')
    elif mode == "storm":
        for number in range(1000):
            ask({"toolCallId": f"c{number}", "title": "t", "kind": "execute", "rawInput": {}}, f"perm-{number}")
    elif mode == "same-id":
        for _ in range(2):
            ask({"toolCallId": "c", "title": "t", "kind": "execute", "rawInput": {}}, "perm-1")
        time.sleep(600)
    elif mode == "long-id":
        ask({"toolCallId": "c", "title": "t", "kind": "execute", "rawInput": {}}, "perm-" + "1" * 300)
        time.sleep(600)
    elif mode == "other-session":
        say("for somebody else", "ses-2")
        say("for us")
    elif mode == "unknown-method":
        send({"id": "u", "method": "fs/write_text_file", "params": {"sessionId": SESSION, "path": "/x", "content": ""}})
        say(str(answer_to("u")["error"]["code"]))
    elif mode == "no-stop-reason":
        return {}
    elif mode == "refusal":
        return {"stopReason": "refusal"}
    elif mode == "error":
        raise LookupError("no model")
    else:
        say(f"you said: {text}")
    return {"stopReason": "end_turn"}


def handle(mode: str, method: str, params: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        if mode == "silent":
            time.sleep(600)
        sessions = {"loadSession": mode in ("load", "load-fails")}
        methods = [{"id": "openai-api-key", "name": "Key"}] if mode == "login-key" else []
        version = 99 if mode == "version" else 1
        return {"protocolVersion": version, "agentCapabilities": sessions, "authMethods": methods}
    if method == "authenticate":
        state["key"] = Path(params["methodId"])
        return {}
    if method == "session/new":
        if mode == "login" or (mode == "login-key" and "key" not in state):
            raise PermissionError
        state["cwd"] = Path(params["cwd"])
        state["servers"] = params["mcpServers"]
        modes = [{"id": "ask", "name": "Ask"}, {"id": "plan", "name": "Plan"}]
        return {"sessionId": SESSION, "modes": {"currentModeId": "ask", "availableModes": modes}}
    if method == "session/load":
        if mode == "load-fails":
            raise LookupError("no such session")
        state["cwd"] = Path(params["cwd"])
        say("an earlier answer", params["sessionId"])
        return {}
    if method == "session/set_mode":
        say(f"mode {params['modeId']}")
        (state["cwd"] / "mode").write_text(params["modeId"])
        return {}
    if method == "session/prompt":
        return prompt(mode, state["cwd"], params["prompt"][0]["text"], state.get("servers", []))
    raise LookupError(method)


def main() -> None:
    mode = sys.argv[1]
    if mode in ("garbage", "greeting"):
        for _ in range(1000 if mode == "garbage" else 3):
            sys.stdout.write("Welcome to the agent!\n")
    print("a word on the side", file=sys.stderr, flush=True)
    state: dict[str, Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "method" not in request or "id" not in request:
            continue
        try:
            result = handle(mode, request["method"], request.get("params") or {}, state)
        except PermissionError:
            send({"id": request["id"], "error": {"code": -32000, "message": "Authentication required"}})
        except LookupError as error:
            send({"id": request["id"], "error": {"code": -32603, "message": str(error)}})
        else:
            send({"id": request["id"], "result": result})


if __name__ == "__main__":
    main()
