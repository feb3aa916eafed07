"""``sublet office serve-tools``: in an office of a real daemon, which is killed, and in one of the published server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from e2e.test_offices import PYTHON, ROOT, daemon, joined, token
from support.daemons import SUBLET, Daemon, wait_for
from support.office_client import Client

pytestmark = pytest.mark.anyio
__all__ = ["daemon"]

PEER = ROOT / "tests" / "clients" / "a2c" / "peer.py"
PROGRAM = ROOT / "tests" / "support" / "tool_program.py"
OFFICE = "55555555-5555-4555-8555-555555555555"
TOOLS = ["notes__add", "notes__end", "notes__fail", "notes__long", "notes__picture", "notes__secret", "notes__wait"]


@contextmanager
def serving(home: Path, given: str, *arguments: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """Run ``serve-tools`` with a token on its standard input; it has to end by itself when it is told to stop."""
    argv = [str(SUBLET), "office", "serve-tools", *arguments, "--token-file", "-", "--server", "notes", "--json"]
    argv += ["--", sys.executable, str(PROGRAM)]
    errors = (cwd / "errors.txt").open("a", encoding="utf-8")
    process = subprocess.Popen(
        argv,
        env=Daemon(home).environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        cwd=cwd,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(given)
        process.stdin.close()
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, (cwd / "errors.txt").read_text()[-3000:]
    finally:
        process.kill()
        process.wait()
        errors.close()
        if process.stdout is not None:
            process.stdout.close()


def first_line(process: subprocess.Popen[str], cwd: Path) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (cwd / "errors.txt").read_text()[-3000:]
    return json.loads(line)


def use(tool: str, **params: object) -> dict[str, object]:
    return {
        "agent": "alice",
        "req_id": f"{tool}-1",
        "computer": "laptop",
        "tool_name": f"notes__{tool}",
        "params": params,
        "timeout": 60,
    }


async def called(client: Client, tool: str, **params: object) -> Any:
    return (await client.call("client:tool_call", use(tool, **params)))[0]


async def test_its_computer_outlives_the_daemon_and_runs_no_call_twice(daemon: Daemon, tmp_path: Path) -> None:
    daemon.json("office", "create", "desk")
    made = token(daemon, "desk", "computer", "laptop")
    agent = token(daemon, "desk", "agent", "alice")
    noted = tmp_path / "noted"
    with serving(daemon.home, json.dumps(made), "desk", cwd=tmp_path) as process:
        ready = first_line(process, tmp_path)
        assert (ready["office_id"], ready["name"], sorted(ready["tools"])) == (made["office_id"], "laptop", TOOLS)
        alice = await joined(agent)
        assert (await called(alice, "add", a=2, b=3))["structuredContent"] == {"result": 5}
        # Its environment is the owner's, without what lets it into the office.
        assert (await called(alice, "secret", name="SUBLET_OFFICE_TOKEN"))["content"][0]["text"] == ""
        await alice.send(f"42/smcp,99{json.dumps(['client:tool_call', use('wait', file=str(noted), seconds=60)])}")
        while not (noted.exists() and noted.read_text()):
            await anyio.sleep(0.05)
        daemon.kill()
        await alice.closed()
        daemon.up()

        def is_there() -> bool:
            members = daemon.json("office", "list")["offices"][0]["members"]
            return any(one["connected"] for one in members if one["name"] == "laptop")

        wait_for(is_there, 60, "the computer in its office again")
        alice = await joined(agent)
        again = await called(alice, "wait", file=str(noted), seconds=0)
        assert again["isError"] is True
        assert "not run a second time" in again["content"][0]["text"]
        assert (await called(alice, "add", a=3, b=3))["structuredContent"] == {"result": 6}
        assert noted.read_text() == "begun\n"
        await alice.socket.close()
    assert made["token"] not in (tmp_path / "errors.txt").read_text()
    told = [json.loads(line) for line in daemon.run("events", "--json").stdout.splitlines()]
    kinds = [
        (one["kind"], one["data"]["member"] if "member" in one["data"] else one["data"]["tool"])
        for one in told
        if one["kind"] in ("office_joined", "office_left", "office_call")
    ]
    assert kinds.count(("office_joined", "laptop")) == 2
    assert ("office_left", "laptop") in kinds
    assert ("office_call", "notes__add") in kinds


@pytest.mark.skipif(not PYTHON.exists(), reason="the published server is not installed: make hosts")
async def test_it_joins_an_office_of_the_published_server(tmp_path: Path) -> None:
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    asked = {"secret": "of-the-admin", "office_id": OFFICE, "computer": "laptop"}
    with subprocess.Popen(
        [str(PYTHON), str(PEER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        peer.stdin.write(f"{json.dumps(asked)}\n")
        peer.stdin.flush()
        # The package says on stdout that it logs.
        url = json.loads(next(line for line in peer.stdout if line.startswith("{")))["url"]
        place = (f"{url}/{OFFICE}", "--name", "laptop", "--uploads", str(uploads))
        with serving(tmp_path / "home", "of-the-admin\n", *place, cwd=tmp_path) as process:
            assert first_line(process, tmp_path)["url"] == url
            said, errors = peer.communicate(timeout=100)
            assert peer.returncode == 0, errors[-3000:]
    found = json.loads(said.splitlines()[-1])
    size, landed = found.pop("upload")
    assert (size, Path(landed).parent, Path(landed).read_bytes()) == (600_000, uploads, b"x" * 600_000)
    assert landed.endswith("_note.txt")
    assert found.pop("picture") >= 700_000 * 4 // 3
    assert found == {
        "joined": True,
        "tools": TOOLS,
        "sum": [False, "5"],
        "fails": True,
        "unknown_tool": True,
        "too_long": [True, True],
        "config": ["notes"],
        "desktop": ["window://notes/main\n\nwhat is on the screen"],
        "skills": [],
    }
