"""Threats at a daemon's doors: local users and web pages, and its own agent (DESIGN 9.1, 9.3)."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio.to_thread
import asyncssh
import pytest

from sublet.daemon.api.delegation_fields import ListNewest
from sublet.daemon.api.delegations import LIST_DELEGATIONS
from sublet.daemon.config.paths import resolve_home
from support.daemons import Daemon, two_daemons
from support.leases import ask, begin, marker, processes_with, wait_state
from support.mcp_face import INITIALIZE, INITIALIZED, RawHost, call, raw_host

NOBODY = 65534
SEND = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "SendMessage",
    "params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": ""}]}},
}
KNOCK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.settimeout(10)
    s.connect(sys.argv[1])
    try:
        s.sendall(sys.argv[2].encode())
        while answer := s.recv(65536).decode():
            sys.stdout.write(answer)
            if answer.startswith("{") and answer.endswith("\\n"):
                break
    except (BrokenPipeError, ConnectionResetError):
        pass
"""

Pair = tuple[Daemon, Daemon]


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """A directory that other users may enter, so that only the daemon itself keeps them out."""
    with tempfile.TemporaryDirectory(prefix="sublet-doors-") as directory:
        Path(directory).chmod(0o755)
        (Path(directory) / "home").mkdir()
        yield Path(directory)


@pytest.fixture(scope="module")
def daemons(base: Path) -> Iterator[Pair]:
    with two_daemons(base, environ={"HOME": str(base / "home")}) as both:
        yield both


# Row 1: loopback is not authentication


def request(daemon: Daemon, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
    """Send one HTTP request to the A2A port and return status and body."""
    address = urlsplit(str(daemon.info["a2a_url"]))
    connection = http.client.HTTPConnection(str(address.hostname), address.port or 80, timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json", **named})
    response = connection.getresponse()
    answer = response.status, response.read().decode()
    connection.close()
    return answer


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {"Host": "evil.example"}, 421),
        ("/.well-known/agent-card.json", {"Host": "evil.example"}, 421),
        ("/.well-known/agent-card.json", {"Host": "127.0.0.1.evil.example"}, 421),
        ("/healthz", {"Host": "localhost@evil.example"}, 421),
        ("/", {"Origin": "https://evil.example"}, 403),
        ("/", {"Origin": "null"}, 403),
        ("/", {"Origin": "http://127.0.0.1:1"}, 403),
        ("/.well-known/agent-card.json", {"Origin": "https://evil.example"}, 403),
        ("/", {}, 401),
        ("/", {"Authorization": "Bearer "}, 401),
        ("/", {"Authorization": "Bearer tok_" + "a" * 40}, 401),
        ("/", {"Authorization": "Basic dXNlcjpwYXNz"}, 401),
        ("/healthz", {}, 401),
        ("/docs", {}, 401),
    ],
)
def test_a2a_answers_nobody_that_it_does_not_know(
    daemons: Pair, path: str, headers: dict[str, str], status: int
) -> None:
    _, executor = daemons
    mark = marker()
    message: Any = json.loads(json.dumps(SEND))
    message["params"]["message"]["parts"][0]["text"] = f"sleep {mark}"

    for method, body in (("POST", message), ("GET", None)):
        told, text = request(executor, method, path, body, **headers)
        assert told == status or (told == 405 and method == "POST" and status not in {401, 403, 421}), text
    assert processes_with(mark) == []
    assert executor.json("status")["assignments_active"] == 0


def test_a_stranger_may_read_the_card_and_nothing_more(daemons: Pair) -> None:
    status, card = request(daemons[1], "GET", "/.well-known/agent-card.json")

    assert status == 200
    assert json.loads(card)["name"]
    assert str(daemons[1].home) not in card


def test_every_port_is_on_loopback(daemons: Pair) -> None:
    for daemon in daemons:
        ports = listening(daemon)
        assert {host for host, _ in ports} == {"0100007F"}
        urls = [urlsplit(str(daemon.info[name])) for name in ("a2a_url", "web")]
        sftp, bus = (int(str(daemon.info[name]).rpartition(":")[2]) for name in ("sftp", "bus"))
        # The bus is opened a moment after there is a peer.
        assert {port for _, port in ports} - {bus} == {*(url.port for url in urls), sftp}


def listening(daemon: Daemon) -> set[tuple[str, int]]:
    """Return the TCP addresses, as the kernel writes them, on which the daemon's process listens."""
    sockets = set()
    for entry in Path(f"/proc/{daemon.pid}/fd").iterdir():
        target = os.readlink(entry)
        if target.startswith("socket:["):
            sockets.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{daemon.pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                host, _, port = fields[1].partition(":")
                found.add((host, int(port, 16)))
    return found


@pytest.mark.anyio
async def test_the_sftp_port_lets_no_stranger_in(daemons: Pair, tmp_path: Path) -> None:
    delegator, _ = daemons
    host, _, port = str(delegator.info["sftp"]).rpartition(":")
    stranger = asyncssh.generate_private_key("ssh-ed25519")
    for user in ("root", "", "dlg_" + "0" * 32, "../x"):
        with pytest.raises((asyncssh.PermissionDenied, asyncssh.ConnectionLost)):
            await asyncssh.connect(
                host, int(port), username=user, client_keys=[stranger], known_hosts=None, config=None, agent_path=None
            )


def test_a_lease_is_open_to_its_own_key_only(daemons: Pair, tmp_path: Path) -> None:
    delegator, _ = daemons
    (tmp_path / "secret").write_text("x")
    id_ = begin(delegator, tmp_path, f"sleep {marker()}")
    wait_state(delegator, id_, "running")
    host, _, port = str(delegator.info["sftp"]).rpartition(":")
    stranger = asyncssh.generate_private_key("ssh-ed25519")

    async def knock() -> None:
        await asyncssh.connect(
            host, int(port), username=id_, client_keys=[stranger], known_hosts=None, config=None, agent_path=None
        )

    with pytest.raises(asyncssh.PermissionDenied):
        asyncio.run(knock())
    delegator.json("cancel", id_)


@pytest.mark.parametrize("name", ["control.sock", "mcp.sock"])
def test_another_user_gets_no_word_out_of_a_socket(daemons: Pair, base: Path, name: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    if python is None:
        pytest.skip("there is no Python that another user may run")
    run = daemons[0].home / "run"
    path = run / name
    assert path.stat().st_mode & 0o777 == 0o600
    assert run.stat().st_mode & 0o777 == 0o700
    words = {
        "control.sock": "GET /v1/status HTTP/1.1\r\nHost: sublet\r\nConnection: close\r\n\r\n",
        "mcp.sock": json.dumps(INITIALIZE) + "\n",
    }[name]
    doors = [daemons[0].home, run]
    modes = [door.stat().st_mode for door in (*doors, path)]
    for door in doors:
        door.chmod(0o755)
    path.chmod(0o666)
    try:
        theirs = knock(python, path, words, user=NOBODY)
        ours = knock(python, path, words, user=os.geteuid())
    finally:
        for door, mode in zip((*doors, path), modes, strict=True):
            door.chmod(mode)

    assert theirs == ""
    assert "node_id" in ours or "serverInfo" in ours  # so the question was one that is answered


def knock(python: str, path: Path, words: str, *, user: int) -> str:
    """Say ``words`` at a Unix socket as another user and return what comes back."""
    argv = [python, "-I", "-c", KNOCK, str(path), words]
    done = subprocess.run(argv, user=user, group=user, extra_groups=[], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(
    "headers", ["Host: evil.example", "Host: sublet\r\nOrigin: https://evil.example", "Host: 127.0.0.1", "X: y"]
)
def test_the_control_socket_answers_programs_of_ours_only(daemons: Pair, headers: str) -> None:
    answer = b""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(daemons[0].home / "run" / "control.sock"))
        connection.sendall(f"GET /v1/status HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n".encode())
        while chunk := connection.recv(4096):
            answer += chunk

    assert answer.split()[1] in {b"400", b"403"}
    assert str(daemons[0].info["node_id"]).encode() not in answer


# Row 3: an injected agent at the delegator


async def hello(host: RawHost, roots: list[str]) -> None:
    """Do the handshake as a host that names ``roots``."""
    hello = json.loads(json.dumps(INITIALIZE))
    hello["params"]["capabilities"] = {"roots": {}} if roots else {}
    await host.send(hello)
    await host.answer(1)
    await host.send(INITIALIZED)


async def lend(host: RawHost, id_: int, path: str, roots: list[str], **more: object) -> dict[str, Any]:
    """Call ``delegate``, answer the question for roots, and return the result."""
    await host.send(call(id_, "delegate", workspace_dir=path, peer="bob", prompt="ls -a", **more))
    while True:
        message = await host.receive()
        if message.get("method") == "roots/list":
            listed = [{"uri": Path(root).as_uri()} for root in roots]
            await host.send({"jsonrpc": "2.0", "id": message["id"], "result": {"roots": listed}})
        elif message.get("id") == id_:
            result = message["result"]
            assert isinstance(result, dict)
            return result


def text_of(result: dict[str, Any]) -> str:
    return "".join(part["text"] for part in result["content"])


@pytest.mark.anyio
@pytest.mark.parametrize("roots", [[], ["/"], ["HOME"]], ids=["no roots", "all as root", "home as root"])
async def test_an_agent_lends_nothing_that_nobody_allowed(daemons: Pair, base: Path, roots: list[str]) -> None:
    delegator, _ = daemons
    home = base / "home"
    for name in (".ssh/deep", ".config/x", ".aws", ".claude", "project"):
        (home / name).mkdir(parents=True, exist_ok=True)
    (home / "keys-by-link").unlink(missing_ok=True)
    (home / "keys-by-link").symlink_to(home / ".ssh")
    (base / "other").mkdir(exist_ok=True)
    named = [str(home) if root == "HOME" else root for root in roots]
    forbidden = [
        "/", str(home), f"{home}/", f"{home}/project/..", str(base), str(delegator.home), f"{delegator.home}/state",
        f"{delegator.home}/state/keys", f"{home}/.ssh", f"{home}/.ssh/deep", f"{home}/.config/x", f"{home}/.aws",
        f"{home}/.claude", f"{home}/keys-by-link", f"{home}/keys-by-link/deep", "/etc", "/proc/self", "/root", "/tmp",
    ]  # fmt: skip
    outside = [] if roots == ["/"] else [str(base / "other")]
    outside += [] if roots else [str(home / "project")]

    async with raw_host(resolve_home(delegator.environment())) as host:
        await hello(host, named)
        for number, path in enumerate([*forbidden, *outside], 10):
            result = await lend(host, number, path, named)
            assert result.get("isError"), path
            assert "POLICY_DENIED" in text_of(result), (path, text_of(result))
    assert await list_ids(delegator) == set()


@pytest.mark.anyio
async def test_allow_opens_one_directory_and_nothing_else(daemons: Pair, base: Path) -> None:
    delegator, _ = daemons
    project = base / "allowed" / "project"
    project.mkdir(parents=True)
    (project / "file").write_text("x")
    (project / "way-out").symlink_to(base / "other")
    (base / "other").mkdir(exist_ok=True)
    (base / "allowed-too").mkdir()
    for refused in (base / "home", Path("/"), delegator.home):
        assert delegator.json("allow", str(refused), check=(5,))["error"]["code"] == "POLICY_DENIED"
    delegator.json("allow", str(base / "allowed"))

    async with raw_host(resolve_home(delegator.environment())) as host:
        await hello(host, [])
        lent = await lend(host, 10, str(project), [], background=False)
        for number, path in enumerate((f"{project}/../../other", f"{project}/way-out", str(base / "allowed-too")), 20):
            assert "POLICY_DENIED" in text_of(await lend(host, number, path, [])), path
        revealing = await lend(host, 30, str(project), [], reveal=[".env"])
        relative = await lend(host, 31, "project", [])

    assert not lent.get("isError"), text_of(lent)
    assert lent["structuredContent"]["state"] == "completed"
    assert "POLICY_DENIED" in text_of(revealing), "what is hidden is for a person to show"
    assert "INVALID_ARGUMENT" in text_of(relative)


async def list_ids(daemon: Daemon) -> set[str]:
    """Return the delegations that were begun by an MCP host."""
    views = await anyio.to_thread.run_sync(
        lambda: ask(daemon, lambda client: client.call(LIST_DELEGATIONS, ListNewest(limit=500)))
    )
    return {view.delegation_id for view in views if "ls -a" in view.description}
