"""An ACP agent on the standard library alone, good or bad: ``python acp_agent.py MODE``.

It reads JSON-RPC lines and answers as an agent would, but for one thing each mode does wrong. ``{cwd}`` in what it does
is the directory of its session.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

SESSION = "ses-1"
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


def prompt(mode: str, cwd: Path, text: str) -> dict[str, Any]:
    if mode == "write":
        say(write(cwd))
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


def handle(mode: str, method: str, params: dict[str, Any], state: dict[str, Path]) -> dict[str, Any]:
    if method == "initialize":
        if mode == "silent":
            time.sleep(600)
        sessions = {"loadSession": mode in ("load", "load-fails")}
        return {"protocolVersion": 99 if mode == "version" else 1, "agentCapabilities": sessions}
    if method == "session/new":
        if mode == "login":
            raise PermissionError
        state["cwd"] = Path(params["cwd"])
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
        return prompt(mode, state["cwd"], params["prompt"][0]["text"])
    raise LookupError(method)


def main() -> None:
    mode = sys.argv[1]
    if mode in ("garbage", "greeting"):
        for _ in range(1000 if mode == "garbage" else 3):
            sys.stdout.write("Welcome to the agent!\n")
    print("a word on the side", file=sys.stderr, flush=True)
    state: dict[str, Path] = {}
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
