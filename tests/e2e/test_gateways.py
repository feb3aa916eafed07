"""Gateways on a real daemon: a program of ours, and programs that connect over HTTP and WebSocket."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from support.daemons import Daemon, wait_for

ECHO = """
import json, os, sys
print(json.dumps({"type": "event", "name": "up"}), flush=True)
print(json.dumps({"type": "input", "requestId": "in1", "message": "from outside", "blocking": True}), flush=True)
seen = []
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "request":
        said = message["message"]
        print(json.dumps({"type": "ack", "requestId": message["requestId"], "accepted": said != "no"}), flush=True)
        if said == "die":
            sys.exit(3)
        output = {"said": said, "seen": seen, "environment": sorted(os.environ), "secret": os.environ.get("GW_SECRET")}
        result = {"type": "result", "requestId": message["requestId"], "success": True, "output": output}
        print(json.dumps(result), flush=True)
    elif message["type"] == "result":
        seen.append(message["output"])
"""
OUTPUT = """
import json, sys
events, sick = [], False
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "ping" and not sick:
        print(json.dumps({"type": "pong", "requestId": message["requestId"]}), flush=True)
    elif message["type"] == "request":
        said = message["message"]
        if isinstance(said, dict) and "event" in said:
            events.append(said["event"])
        sick = said == "be sick"
        answer = {"type": "result", "requestId": message["requestId"], "success": True, "output": events}
        print(json.dumps(answer), flush=True)
"""
NOT_TOLD = {
    "id": "not-told",
    "effect": "deny",
    "action": "module.dispatch",
    "resource": "sock-out",
    "when": {"event": "policy_rejected"},
}
NOT_RUN = {"id": "not-run", "effect": "deny", "action": "capability.run", "resource": "capability.nothing"}
AGENT = {"id": "echo", "role": "executor", "provider": {"type": "command", "argv": ["sh", "-c", "echo got; cat"]}}


def module(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "name": name, "version": "1", "description": "d", "direction": "duplex", **more}


def add(daemon: Daemon, found: dict[str, Any]) -> None:
    directory: Path = daemon.home / "config" / "gateways" / found["id"]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "module.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    one = Daemon(tmp_path_factory.mktemp("w") / "a", environ={"GW_SECRET": "s3", "GW_OTHER": "o"})
    python = shutil.which("python3", path="/usr/bin:/bin") or "python3"
    process = {"command": python, "args": ["-c", ECHO], "environment": ["GW_SECRET"]}
    add(one, module("echo", protocol="stdio", process=process, restart={"maxAttempts": 3, "backoffMs": 20}))
    output = {"command": python, "args": ["-c", OUTPUT]}
    health = {"intervalMs": 50, "timeoutMs": 2_000, "failures": 1}
    replies = [{"replies": True, "agent": "ec*"}]
    again = {"maxAttempts": 5, "backoffMs": 20}
    add(one, module("out", protocol="stdio", direction="output", process=output, feed=replies, restart=again))
    add(one, module("checked", protocol="stdio", direction="output", process=output, health=health, restart=again))
    add(one, module("web-out", protocol="http", direction="output", feed=[{"kinds": ["route_decided"]}]))
    sessions = [{"kinds": ["session_created", "policy_rejected"]}]
    add(one, module("sock-out", protocol="websocket", direction="output", feed=sessions, health={"intervalMs": 20}))
    (one.home / "config" / "policy.json").write_text(json.dumps({"version": 1, "global": [NOT_TOLD, NOT_RUN]}))
    add(one, module("web", protocol="http"))
    add(one, module("sock", protocol="websocket", direction="input"))
    add(one, module("broken", protocol="carrier-pigeon"))
    once = {"maxAttempts": 0, "backoffMs": 20}
    add(one, module("absent", protocol="stdio", process={"command": "no-such-program"}, restart=once))
    add(one, module("brief", protocol="stdio", process={"command": python, "args": ["-c", "exit(3)"]}, restart=once))
    add(one, module("spoilt", protocol="websocket"))
    (one.home / "state" / "gateways" / "spoilt.token").mkdir(parents=True)
    for name in ("config", "state", "state/gateways"):
        (one.home / name).chmod(0o700)
    try:
        yield one.up(agent=AGENT)
    finally:
        one.down()


def state(daemon: Daemon, name: str) -> str:
    found = {one["id"]: one["state"] for one in daemon.json("gateway", "list")["gateways"]}
    return str(found[name])


def test_a_program_of_ours_brings_requests_and_delivers(daemon: Daemon) -> None:
    wait_for(lambda: state(daemon, "echo") == "connected", what="the program")
    assert daemon.json("gateway", "list")["problems"][0]["directory"].endswith("broken")
    assert state(daemon, "spoilt") == "failed"

    def answered() -> Any:
        output = daemon.json("gateway", "send", "echo", '{"n": 1}')["output"]
        return output if output["seen"] else None

    output = wait_for(answered, what="an answer to what it brought")
    assert output["said"] == {"n": 1}
    assert "got" in output["seen"][0]
    assert "from outside" in output["seen"][0]
    assert output["secret"] == "s3"
    assert not {"GW_OTHER", "SUBLET_HOME"} & set(output["environment"])
    refused = daemon.run("gateway", "send", "echo", "no", "--json", check=None)
    assert json.loads(refused.stdout)["error"]["code"] == "DECLINED"
    assert daemon.json("gateway", "send", "echo", "x", "--async")["output"] is None


def test_why_a_program_does_not_run_is_told(daemon: Daemon) -> None:
    def detail(name: str) -> str:
        found = {one["id"]: one for one in daemon.json("gateway", "list")["gateways"]}[name]
        return str(found["detail"]) if found["state"] == "failed" else ""

    assert "there is no program 'no-such-program'" in wait_for(lambda: detail("absent"), what="the absent one's end")
    assert "ended with status 3" in wait_for(lambda: detail("brief"), what="the brief one's end")


def test_it_is_started_again_when_it_ends_and_no_more_when_it_is_stopped(daemon: Daemon) -> None:
    wait_for(lambda: state(daemon, "echo") == "connected", what="the program")
    lost = daemon.run("gateway", "send", "echo", "die", "--json", check=None)
    assert json.loads(lost.stdout)["error"]["code"] == "UNAVAILABLE"
    wait_for(lambda: state(daemon, "echo") == "connected", what="the program again")
    assert daemon.json("gateway", "stop", "echo")["state"] == "stopped"
    gone = daemon.run("gateway", "send", "echo", "x", "--json", check=None)
    assert json.loads(gone.stdout)["error"]["code"] == "UNAVAILABLE"
    daemon.json("gateway", "start", "echo")
    wait_for(lambda: state(daemon, "echo") == "connected", what="the program after a stop")


def test_http_with_a_stream(daemon: Daemon) -> None:
    shown = daemon.json("gateway", "show", "web")
    headers = {"Authorization": f"Bearer {shown['token']}"}
    with (
        httpx.Client(base_url=shown["url"], timeout=30) as client,
        client.stream("GET", f"{shown['url']}/stream", headers=headers) as stream,
    ):
        lines = (line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith("data: "))
        brought = {"type": "input", "requestId": "h1", "message": "by http", "blocking": True}
        taken = client.post(f"{shown['url']}/messages", headers=headers, content=json.dumps(brought))
        assert (taken.status_code, taken.json()) == (202, {"taken": 1})
        assert json.loads(next(lines))["type"] == "ack"
        result = json.loads(next(lines))
        assert result["success"]
        assert "by http" in result["output"]


def test_websocket(daemon: Daemon) -> None:
    shown = daemon.json("gateway", "show", "sock")
    headers = {"Authorization": f"Bearer {shown['token']}"}
    with connect(shown["url"], additional_headers=headers) as socket:
        socket.send(json.dumps({"type": "input", "requestId": "w1", "message": "by socket", "blocking": True}))
        assert json.loads(socket.recv(timeout=30))["type"] == "ack"
        assert "by socket" in json.loads(socket.recv(timeout=30))["output"]
        refused = daemon.run("gateway", "send", "sock", "x", "--json", check=None)
        assert json.loads(refused.stdout)["error"]["code"] == "INVALID_ARGUMENT"


def test_others_connect_while_a_websocket_is_open_and_its_place_is_taken(daemon: Daemon) -> None:
    sock, web = daemon.json("gateway", "show", "sock"), daemon.json("gateway", "show", "web")
    mine, theirs = ({"Authorization": f"Bearer {shown['token']}"} for shown in (sock, web))
    with connect(sock["url"], additional_headers=mine) as first:
        with httpx.stream("GET", f"{web['url']}/stream", headers=theirs, timeout=30) as stream:
            assert stream.status_code == 200
            with connect(sock["url"], additional_headers=mine) as second:
                second.send(json.dumps({"type": "input", "requestId": "w1", "message": "later", "blocking": True}))
                assert json.loads(second.recv(timeout=30))["type"] == "ack"
                assert "later" in json.loads(second.recv(timeout=30))["output"]
        with pytest.raises(ConnectionClosed):
            first.recv(timeout=30)


def test_nobody_connects_without_the_token_or_from_a_page_or_by_another_name(daemon: Daemon) -> None:
    shown = daemon.json("gateway", "show", "web")
    other = daemon.json("gateway", "show", "sock")
    good = {"Authorization": f"Bearer {shown['token']}"}
    for headers, status in (
        ({}, 401),
        ({"Authorization": "Bearer x"}, 401),
        ({"Authorization": f"Bearer {other['token']}"}, 401),
        ({**good, "Origin": "http://127.0.0.1:1"}, 403),
        ({**good, "Host": "evil.example"}, 421),
    ):
        assert httpx.get(f"{shown['url']}/stream", headers=headers).status_code == status
    for headers in ({}, {**good, "Origin": "http://evil.example"}):
        with pytest.raises(InvalidStatus), connect(other["url"], additional_headers=headers):
            pass


def test_answers_are_fed_to_a_program_by_rule_and_each_once_over_a_restart_of_it(daemon: Daemon) -> None:
    wait_for(lambda: state(daemon, "out") == "connected", what="the program")
    asked = daemon.json("ask", "tell everybody")

    def told() -> list[dict[str, Any]]:
        found = daemon.json("gateway", "send", "out", '"what have you seen?"')["output"]
        return [one for one in found if one["keys"]["requestId"] == asked["requestId"]]

    [event] = wait_for(told, what="the answer")
    assert event["kind"] == "dispatch_result"
    assert "tell everybody" in event["data"]["summary"]
    daemon.json("gateway", "stop", "out")
    asked = daemon.json("ask", "tell it later")
    daemon.json("gateway", "start", "out")
    wait_for(lambda: state(daemon, "out") == "connected", what="the program again")
    [event] = wait_for(told, what="the answer that was given meanwhile")
    assert "tell it later" in event["data"]["summary"]


def test_a_program_that_fails_its_health_check_is_started_again(daemon: Daemon) -> None:
    def health() -> Any:
        return next(one for one in daemon.json("gateway", "list")["gateways"] if one["id"] == "checked")

    wait_for(lambda: health()["health"] == "ok", what="a health check")
    daemon.json("gateway", "send", "checked", "be sick")
    wait_for(lambda: "health checks" in daemon.log(), what="the end of the sick one")
    wait_for(lambda: health()["health"] == "ok", what="a health check of the next one")
    assert daemon.json("gateway", "send", "checked", "and you?")["output"] == []


def test_events_are_fed_over_http_and_what_was_missed_is_told_later(daemon: Daemon) -> None:
    shown = daemon.json("gateway", "show", "web-out")
    headers = {"Authorization": f"Bearer {shown['token']}"}
    for text in ("while it is away", "and again"):
        asked = daemon.json("ask", text)["requestId"]
        with (
            httpx.Client(base_url=shown["url"], timeout=30) as client,
            client.stream("GET", f"{shown['url']}/stream", headers=headers) as stream,
        ):
            found = ""
            for line in stream.iter_lines():
                if not line.startswith("data: "):
                    continue
                request = json.loads(line.removeprefix("data: "))
                result = {"type": "result", "requestId": request["requestId"], "success": True}
                client.post(f"{shown['url']}/messages", headers=headers, content=json.dumps(result))
                event = request["message"]["event"]
                assert event["kind"] == "route_decided"
                found = event["keys"]["requestId"]
                if found == asked:
                    break
            assert found == asked


def test_events_are_fed_over_a_websocket_as_far_as_policy_lets_them(daemon: Daemon) -> None:
    shown = daemon.json("gateway", "show", "sock-out")
    with connect(shown["url"], additional_headers={"Authorization": f"Bearer {shown['token']}"}) as socket:
        # Refused, and so an event that a rule names and policy keeps from it.
        refused = daemon.json("capability", "run", "nothing", check=None)
        assert refused["error"]["code"] == "POLICY_DENIED"
        asked, kinds, pings = daemon.json("ask", "a new session")["fingerSessionId"], [], 0
        while True:
            message = json.loads(socket.recv(timeout=30))
            if message["type"] == "ping":
                pings += 1
                socket.send(json.dumps({"type": "pong", "requestId": message["requestId"]}))
                continue
            event = message["message"]["event"]
            kinds.append(event["kind"])
            socket.send(json.dumps({"type": "result", "requestId": message["requestId"], "success": True}))
            if event["keys"]["fingerSessionId"] == asked:
                break
        assert set(kinds) == {"session_created"}
        assert pings
    wait_for(lambda: state(daemon, "sock-out") == "starting", what="the end of the connection")
