"""A hostile executor against a real lender: keys used elsewhere, strange answers, and names meant to deceive."""

from __future__ import annotations

import asyncio
import json
import unicodedata
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio.to_thread
import asyncssh
import pytest

from sublet.daemon.peering.identity import load_identity
from sublet.protocol.messages import Done, Start
from support.daemons import Daemon, two_daemons
from support.hostile_worker import HostileWorker, in_place_of
from support.leases import begin, delegate, finish, view
from support.sftp_client import open_channel, string

pytestmark = pytest.mark.anyio

Pair = tuple[Daemon, Daemon]
WRITE, CREAT = 2, 8
NAMES = [
    b"new\nline",
    b"\x1b[31mred\x1b[0m",
    b"\x1b]0;title\x07",
    b"-o ProxyCommand=touch pwned",
    b"--help",
    b"\xff\xfe\x80 no text",
    b"n" * 255,
    "right\u202eto left".encode(),
    b" leading and trailing ",
    b"a\tb\rc",
    b'quote" and \\ back',
    b"$(touch pwned)",
    b"{}[]*?",
]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with two_daemons(tmp_path_factory.mktemp("worker")) as both:
        yield both


@pytest.fixture
async def worker(daemons: Pair, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HostileWorker]:
    async with in_place_of(daemons[1], daemons[0], tmp_path_factory.mktemp("face")) as hostile:
        yield hostile


async def off(call: object, *arguments: object) -> object:
    """Call in a thread, so that the hostile side goes on answering."""
    return await anyio.to_thread.run_sync(lambda: call(*arguments))  # type: ignore[operator]


def clean(text: str) -> bool:
    """Tell whether a terminal shows ``text`` as it is."""
    return not any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co"} for char in text if char not in "\n\t")


async def refused(worker: HostileWorker, start: Start, user: str, key: asyncssh.SSHKey) -> None:
    with pytest.raises((asyncssh.PermissionDenied, asyncssh.ConnectionLost)):
        async with worker.connect(start, user=user, key=key):
            raise AssertionError("it was let in")


async def test_a_key_opens_its_own_lease_and_only_while_that_lasts(
    daemons: Pair, worker: HostileWorker, tmp_path: Path
) -> None:
    lender = daemons[0]
    go = asyncio.Event()

    async def wait(_: HostileWorker, start: Start) -> Done:
        await go.wait()
        return Done(delegation_id=start.delegation_id, final_summary="done")

    worker.deed = wait
    ids = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
        ids.append(str(await off(begin, lender, tmp_path / name, "x")))
    while len(worker.starts) < 2:
        await asyncio.sleep(0.02)
    first, second = (worker.starts[id_] for id_ in ids)
    identity = load_identity(daemons[1].home / "state" / "keys")

    await refused(worker, first, ids[1], worker.keys[ids[0]])
    await refused(worker, first, ids[0], identity.ssh_host_key)
    await refused(worker, first, "", worker.keys[ids[0]])
    async with worker.connect(first) as connection, worker.connect(second) as other:
        channel = await open_channel(connection)
        names = await channel.ask(11, string(b"/workspace"))
        assert (await channel.ask(12, string(names.handle))).names == [b".", b"..", b"one"]
        assert (await channel.ask(3, string(b"/../two/two") + b"\0\0\0\1\0\0\0\0")).status == 2
        await off(lender.json, "cancel", ids[0])
        await channel.session.closed.wait()
        await refused(worker, first, ids[0], worker.keys[ids[0]])
        still = await open_channel(other)
        assert (await still.ask(17, string(b"/workspace/two"))).kind == 105
        go.set()
        assert str((await anyio.to_thread.run_sync(finish, lender, ids[1])).state) == "completed"
    await refused(worker, second, ids[1], worker.keys[ids[1]])


async def test_names_that_are_meant_to_deceive_are_shown_as_they_are(
    daemons: Pair, worker: HostileWorker, tmp_path: Path
) -> None:
    lender = daemons[0]
    lent = tmp_path / "lent"
    lent.mkdir()
    (lent / "own").write_text("mine\n")

    async def make(_: HostileWorker, start: Start) -> Done:
        async with worker.connect(start) as connection:
            channel = await open_channel(connection)
            for name in NAMES:
                made = await channel.open(b"/workspace/" + name, WRITE | CREAT)
                written = await channel.ask(6, string(made.handle) + b"\0" * 8 + string(name + b"\n"))
                assert written.status == 0
                assert (await channel.ask(4, string(made.handle))).status == 0
            for bad in (b"a" * 256, b"x/../../out", b"nul\0byte"):
                answer = await channel.open(b"/workspace/" + bad, WRITE | CREAT)
                assert answer.kind == 101
        return Done(
            delegation_id=start.delegation_id,
            final_summary="see \x1b[31mred",
            highlights=["../../etc/passwd", "-o", "\x1b[2J", "x" * 4096],
        )

    worker.deed = make
    id_ = str(await off(begin, lender, lent, "x"))
    await anyio.to_thread.run_sync(finish, lender, id_)

    assert {bytes(path.name, "utf-8", "surrogateescape") for path in lent.iterdir()} == {*NAMES, b"own"}
    assert [path.name for path in tmp_path.iterdir()] == ["lent"]
    for command in (("audit", id_), ("diff", id_), ("output", id_), ("ls", "--all")):
        told = lender.run(*command)
        assert clean(told.stdout), command
        assert clean(told.stderr), command
        raw = lender.run(*command, "--json").stdout
        assert len(json.dumps(json.loads(raw))) > 10
        assert clean(raw), command
    report = lender.json("audit", id_)
    assert len(report["added"]) == len(NAMES)
    assert report["unaudited"] == []


@pytest.mark.parametrize(
    "line",
    [
        'command="touch pwned" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',
        "-----BEGIN OPANSSH \x1b[2JIVATE KEY----END OPENSSH PRIVATE KEY-----",
        "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC7",
        "ssh-ed25519 AAAA\nssh-ed25519 AAAA",
        "*",
        "-----BEGIN CERTIFICATE-----",
    ],
)
async def test_a_key_that_is_none_ends_as_that(daemons: Pair, worker: HostileWorker, tmp_path: Path, line: str) -> None:
    worker.accepting["public_key"] = line
    ended = await anyio.to_thread.run_sync(delegate, daemons[0], tmp_path, "x")
    assert (ended["state"], ended["error"]["code"]) == ("error", "AUTH_FAILED")
    assert worker.starts == {}


async def test_an_answer_of_megabytes_ends_the_delegation_and_nothing_else(
    daemons: Pair, worker: HostileWorker, tmp_path: Path
) -> None:
    async def boast(_: HostileWorker, start: Start) -> Done:
        done = Done(delegation_id=start.delegation_id, final_summary="")
        return done.model_copy(update={"final_summary": "x" * (10 << 20)})

    worker.deed = boast
    lender = daemons[0]
    id_ = str(await off(begin, lender, tmp_path, "x", "--ttl", "6"))
    ended = await anyio.to_thread.run_sync(finish, lender, id_)

    assert str(ended.state) in ("error", "expired")
    assert ended.result is None
    assert str((await anyio.to_thread.run_sync(view, lender, id_)).state) == str(ended.state)
    assert lender.alive()
