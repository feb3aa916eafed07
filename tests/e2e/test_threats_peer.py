"""Threats from a paired peer: a hostile delegator, its endpoint, and its text (DESIGN 9.7, 9.8, 9.12)."""

from __future__ import annotations

import asyncio
import json
import socket
import unicodedata
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import asyncssh
import pytest

from sublet.daemon.config.paths import resolve_home
from sublet.protocol.messages import Done, Error, Progress
from sublet.workspace.mount import mount
from support.daemons import Daemon, two_daemons
from support.hostile_lender import HostileLender
from support.leases import delegate, processes_with, tree
from support.mcp_face import raw_host

Pair = tuple[Daemon, Daemon]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with two_daemons(tmp_path_factory.mktemp("pair")) as both:
        yield both


@pytest.fixture
def lent(tmp_path: Path) -> Path:
    """What the rogue server serves."""
    (tmp_path / "lent" / "workspace").mkdir(parents=True)
    (tmp_path / "lent" / "meta").mkdir()
    return tmp_path / "lent"


@asynccontextmanager
async def listening(host: str, port: int = 0) -> AsyncIterator[tuple[int, list[tuple[str, int]]]]:
    """Listen and note who calls."""
    callers: list[tuple[str, int]] = []

    def called(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        callers.append(writer.get_extra_info("peername"))
        writer.close()

    server = await asyncio.start_server(called, host, port)
    try:
        yield server.sockets[0].getsockname()[1], callers
    finally:
        server.close()
        await server.wait_closed()


def state(executor: Daemon) -> list[str]:
    """Return what lies where a delegation id could have made something."""
    places = (executor.home, executor.home.parent, executor.home / "state", executor.home / "state" / "mounts")
    volatile = ("sublet.db", "a2a.sqlite3")
    return [
        str(p) for place in places if place.is_dir() for p in sorted(place.iterdir()) if p.name[:11] not in volatile
    ]


# Row 7: nothing of the wire becomes an option, a path, a host or a command


@pytest.mark.anyio
async def test_mount_options_of_the_wire_are_read_by_nobody(daemons: Pair, lent: Path, tmp_path: Path) -> None:
    trap = tmp_path / "pwned"
    options = {
        "ProxyCommand": f"touch {trap}",
        "ssh_command": f"sh -c 'touch {trap}'",
        "sftp_server": f"/bin/sh -c 'touch {trap}'",
        "directport": "1",
        "follow_symlinks": True,
        "no_contain_symlinks": True,
        "allow_other": True,
        "suid": True,
        "IdentityFile": "/etc/shadow",
        "-o": f"ProxyCommand=touch {trap}",
    }
    async with HostileLender(*daemons) as lender, lender.serving(lent) as port:
        invite = lender.invitation("touch started; while [ ! -e go ]; do sleep 0.1; done")
        task, accept = await lender.invite(invite)
        async with asyncio.TaskGroup() as group:
            start = lender.start(invite.delegation_id, port, options=options)
            running = group.create_task(lender.run(task, start))
            while not (lent / "workspace" / "started").exists():
                await asyncio.sleep(0.05)
                assert not running.done(), running.result()
            found = await anyio.to_thread.run_sync(processes_with, accept.remote_mount.mount_point)
            lines = [Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0") for pid in found]
            (lent / "workspace" / "go").touch()

    assert isinstance(running.result()[-1], Done)
    (sshfs,) = [line for line in lines if line[0].endswith("sshfs")]
    assert sshfs[1:-1] == ["-f", "-o", mount.options(), "sublet:/", accept.remote_mount.mount_point]
    assert not trap.exists()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "id_",
    [
        "../../evil", "..", ".", "", "a/b", "/tmp/evil", "-oProxyCommand=touch", "a b", "a\nb", "a\0b", "a" * 65,
        "dlg_é", "$(touch evil)", "a;b", ".hidden",
    ],
)  # fmt: skip
async def test_an_id_that_is_no_name_makes_nothing(daemons: Pair, id_: str) -> None:
    before = state(daemons[1])

    async with HostileLender(*daemons) as lender:
        refused = await lender.refused(lender.invitation("true", id_))

    assert "malformed" in str(refused)
    assert state(daemons[1]) == before


@pytest.mark.anyio
@pytest.mark.parametrize(
    "locator",
    [
        "/../../etc",
        "/workspace/../..",
        "relative",
        "-oProxyCommand=x",
        "/a b",
        "/a;touch x",
        "/$(x)",
        "",
        "/a\n",
        "host:/",
    ],
)
async def test_a_locator_that_is_no_plain_path_mounts_nothing(daemons: Pair, lent: Path, locator: str) -> None:
    async with HostileLender(*daemons) as lender, lender.serving(lent) as port:
        invite = lender.invitation("touch started")
        task, accept = await lender.invite(invite)
        updates = await lender.run(task, lender.start(invite.delegation_id, port, locator=locator))

    end = updates[-1]
    assert isinstance(end, Error)
    assert end.code in {"MOUNT_FAILED", "DECLINED"}
    assert list((lent / "workspace").iterdir()) == []
    assert daemons[1].mounts == []
    assert not Path(accept.remote_mount.mount_point).exists()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "host",
    ["127.0.0.2", "169.254.169.254", "metadata.google.internal", "::1", "-oX=x", "0.0.0.0", "2130706434", "127.0.2"],
)
async def test_an_endpoint_elsewhere_is_never_dialled(daemons: Pair, lent: Path, host: str) -> None:
    """Only the address that the delegator called from is dialled, whatever START names (row 12)."""
    async with (
        HostileLender(*daemons) as lender,
        lender.serving(lent) as port,
        listening("127.0.0.2", port) as (_, callers),
    ):
        invite = lender.invitation("touch started")
        task, _ = await lender.invite(invite)
        updates = await lender.run(task, lender.start(invite.delegation_id, port, host=host))

    assert callers == []
    assert isinstance(updates[-1], Done), updates[-1]  # it went to where START came from
    assert (lent / "workspace" / "started").exists()


@pytest.mark.anyio
async def test_a_server_without_the_pinned_key_gets_nothing(daemons: Pair, lent: Path) -> None:
    async with HostileLender(*daemons) as lender, HostileLender(*daemons) as other, other.serving(lent) as port:
        invite = lender.invitation("touch started")
        task, _ = await lender.invite(invite)
        updates = await lender.run(task, lender.start(invite.delegation_id, port))

    assert isinstance(updates[-1], Error)
    assert updates[-1].code == "AUTH_FAILED"
    assert list((lent / "workspace").iterdir()) == []


@pytest.mark.anyio
async def test_a_delegation_of_somebody_else_is_out_of_reach(daemons: Pair, lent: Path, tmp_path: Path) -> None:
    """The reverse data path hands connections over by delegation id, which is no proof of anything."""
    async with HostileLender(*daemons) as lender, lender.serving(lent) as port:
        invite = lender.invitation("touch started")
        task, _ = await lender.invite(invite)
        start = lender.start(invite.delegation_id, port)
        stolen = start.model_copy(update={"delegation_id": "dlg_" + "0" * 32})
        updates = await lender.run(task, stolen)

    assert isinstance(updates[-1], Error)
    assert list((lent / "workspace").iterdir()) == []


@pytest.mark.anyio
async def test_the_executors_sftp_port_serves_nobody_who_only_knows_an_id(daemons: Pair) -> None:
    _, executor = daemons
    host, _, port = str(executor.info["sftp"]).rpartition(":")
    for line in (b"SUBLET-REVERSE dlg_x\n", b"\0" * 100, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(line)
            assert b"HTTP" not in await anyio.to_thread.run_sync(connection.recv, 4096)
    key = asyncssh.generate_private_key("ssh-ed25519")
    with pytest.raises((asyncssh.PermissionDenied, asyncssh.ConnectionLost)):
        await asyncssh.connect(host, int(port), username="dlg_x", client_keys=[key], known_hosts=None, config=None)


# Row 8: a peer's text steers neither a terminal nor an agent

ESC = "\x1b"
STEERING = (
    f"{ESC}[31mred{ESC}[0m {ESC}]0;title\x07 {ESC}]8;;http://evil.example{ESC}\\link{ESC}]8;;{ESC}\\ {ESC}[2J{ESC}[H "
    f"{ESC}]52;c;cHduZWQ=\x07 \x9b31m \x07\x08\x08\x7f \r overwritten "
    "\u202egnirts desrever\u202c \u2066isolate\u2069 zero\u200bwidth \ufeffbom tag\U000e0041 sel\ufe0f \u2028line"
)
HOSTILE_NAME = f"file{ESC}[2J\u202etxt.exe\n- added: nothing"
PRINT = "cat words; cat words >&2"


def assert_clean(text: str, *, lines: bool = True) -> None:
    """Assert that ``text`` can't steer a terminal, reorder what is read, or hide anything."""
    allowed = "\n\t" if lines else ""
    bad = {
        f"U+{ord(char):04X}"
        for char in text
        if char not in allowed and unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    }
    assert bad == set()


def strings(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)


@pytest.fixture(scope="module", params=["done", "failed"])
def hostile(
    request: pytest.FixtureRequest, daemons: Pair, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Any]]:
    """A delegation whose agent printed steering text, named files so, and ended well or not."""
    directory = tmp_path_factory.mktemp("text")
    (directory / "words").write_text(STEERING)
    script = f"{PRINT}; cp words \"$(printf 'file\\033[2J\\342\\200\\256txt.exe\\n- added: nothing')\""
    script += "" if request.param == "done" else "; exit 3"
    ended = delegate(daemons[0], directory, script)
    assert ended["state"] == ("completed" if request.param == "done" else "error"), ended
    assert any(name == HOSTILE_NAME for name in tree(directory))
    return str(ended["delegation_id"]), ended


def test_peer_text_is_clean_in_every_json(daemons: Pair, hostile: tuple[str, dict[str, Any]]) -> None:
    delegator, _ = daemons
    id_, ended = hostile
    answers = [
        ended,
        delegator.json("output", id_),
        delegator.json("ls", "--all"),
        delegator.json("audit", id_),
        delegator.json("audit", id_, "--patch"),
        delegator.json("peers", "list"),
    ]

    for answer in answers:
        for text in strings(answer):
            assert_clean(text)
    assert any("\\x1b[2J\\u202etxt.exe\\x0a- added: nothing" in name for name in ended["audit"]["added"])
    if ended["result"]:
        assert ended["result"]["untrusted"] is True
        assert "red" in ended["result"]["final_summary"]
    else:
        assert ended["error"]["from_peer"] is True


def test_peer_text_is_clean_for_people(daemons: Pair, hostile: tuple[str, dict[str, Any]]) -> None:
    delegator, _ = daemons
    id_, ended = hostile
    commands = [["output", id_], ["ls", "--all"], ["audit", id_], ["diff", id_], ["peers", "list"]]

    for command in commands:
        done = delegator.run(*command)
        assert_clean(done.stdout)
        assert_clean(done.stderr)
    shown = delegator.run("output", id_).stdout
    if ended["result"]:
        assert "its own words, not checked" in shown
        # Every line of the peer's stands behind a bar, so that none can pass for one of ours.
        assert all("overwritten" not in line or "│" in line or "|" in line for line in shown.splitlines())


@pytest.mark.anyio
async def test_peer_text_is_clean_and_marked_for_agents(daemons: Pair, hostile: tuple[str, dict[str, Any]]) -> None:
    delegator, _ = daemons
    id_, _ = hostile
    async with raw_host(resolve_home(delegator.environment())) as host:
        await host.hello()
        for number, section in enumerate(("log", "summary", "files", "patch"), 10):
            answer = await host.call(number, "delegate_output", delegation_id=id_, section=section)
            result = answer["result"]
            for text in strings(result):
                assert_clean(text)
            (part,) = result["content"]
            structured = result["structuredContent"]
            assert structured["from_peer"]["untrusted"] is True
            assert json.loads(part["text"]) == structured
            own = {key: value for key, value in structured.items() if key != "from_peer"}
            assert "overwritten" not in json.dumps({k: v for k, v in own.items() if k != "description"})


@pytest.mark.anyio
async def test_a_hostile_prompt_text_is_clean_in_the_executors_log(daemons: Pair, lent: Path) -> None:
    _, executor = daemons
    async with HostileLender(*daemons) as lender, lender.serving(lent) as port:
        invite = lender.invitation("echo ok").model_copy()
        named = invite.model_copy(update={"task": invite.task.model_copy(update={"description": STEERING})})
        task, _ = await lender.invite(named)
        updates = await lender.run(task, lender.start(invite.delegation_id, port))

    assert isinstance(updates[-1], (Done, Error))
    assert all(isinstance(update, Progress) for update in updates[:-1])
    assert_clean(executor.log())
