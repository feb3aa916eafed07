"""An executor that sends more than can be done at once: others get on in between, and the end of its lease cuts it."""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
from pathlib import Path

import pytest

from attacks.kit.executor import (
    LSTAT,
    OPENDIR,
    READDIR,
    STAT,
    connected,
    hose,
    on_handle,
    path_request,
    rename,
)
from attacks.scenes import Scene, scene
from sublet.workspace.confined.held import QUICK_ENTRIES
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.sftp.again import MAX_LOOKS
from sublet.workspace.ssh.turns import Turns
from sublet.workspace.view.export_view import WritableView
from support.sftp_client import NO_ATTRIBUTES, string

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("tuned_or_not")]

W = b"/workspace/"
FLOOD = 600
MANY = 8_000
"""Of what takes some microseconds."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What is lent to the attacker: many names, a long chain of links, and to the honest one a file."""
    lent = tmp_path / "mallory"
    (lent / "below" / "large").mkdir(parents=True)
    for number in range(2_000):
        (lent / "below" / "large" / f"{number}").touch()
    deep = lent
    for _ in range(12):
        deep = deep / "deep"
        deep.mkdir()
    (deep / "link-0").write_text("the end\n")
    for number in range(1, 17):
        (deep / f"link-{number}").symlink_to(f"link-{number - 1}")
    (tmp_path / "honest").mkdir()
    (tmp_path / "honest" / "file").write_text("content\n")
    return tmp_path


def up_and_down(number: int) -> bytes:
    """Return a rename to where the directory is walked through, and back."""
    low, high = W + b"below/large", W + b"large"
    return rename(high, low) if number % 2 else rename(low, high)


def chain(_: int) -> bytes:
    """Return a question about the end of a long chain of links."""
    return path_request(STAT, W + b"deep/" * 12 + b"link-16")


FLOODS = {
    "renames of a large directory": b"".join(map(up_and_down, range(FLOOD))),
    "long chains of links": b"".join(map(chain, range(FLOOD))),
    "statuses": path_request(LSTAT, W + b"deep/" * 12) * MANY,
}
SIZES = {flood: MANY if name == "statuses" else FLOOD for name, flood in FLOODS.items()}


async def begun(lent: Scene) -> int:
    """Wait until the attacker's requests are being worked off, and return how many are done."""
    while not lent.done:
        await asyncio.sleep(0)
    return lent.done


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_others_are_answered_while_a_flood_is_worked_off(root: Path, flood: bytes) -> None:
    async with scene(root) as lent, connected(lent.honest) as other, connected(lent.attacker) as connection:
        honest, attacker = await hose(other), await hose(connection)
        attacker.send(flood)
        before = await begun(lent)
        assert (await honest.ask(LSTAT, string(W + b"file"))).kind == 105
        assert lent.done - before <= SIZES[flood] // 4


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_the_end_of_the_lease_comes_between_two_requests(root: Path, flood: bytes) -> None:
    async with scene(root) as lent, connected(lent.attacker) as connection:
        attacker = await hose(connection)
        attacker.send(flood)
        await begun(lent)
        usage = lent.plane.revoke(lent.attacker.lease, "cancelled")
        assert usage is not None
        assert usage.operations <= SIZES[flood] // 4
        at_the_end = usage.operations
        await attacker.closed.wait()
        assert usage.operations == at_the_end


async def test_the_end_of_the_lease_comes_between_two_steps_of_one_request(root: Path) -> None:
    async with scene(root) as lent, connected(lent.attacker) as connection:
        attacker = await hose(connection)
        for number in range(20):
            os.mkdir(root / "mallory" / "below" / "large" / f"dir-{number}")
            for name in range(500):
                (root / "mallory" / "below" / "large" / f"dir-{number}" / f"{name}").touch()
        before = len(os.listdir("/proc/self/fd"))
        attacker.send(up_and_down(0))
        await begun(lent)
        lent.plane.revoke(lent.attacker.lease, "cancelled")
        await attacker.closed.wait()
        assert (root / "mallory" / "below" / "large").is_dir()
        assert len(os.listdir("/proc/self/fd")) <= before


async def test_channels_of_one_peer_have_one_share(root: Path) -> None:
    shutil.copytree(root / "mallory", root / "honest", symlinks=True, dirs_exist_ok=True)
    async with scene(root) as lent, connected(lent.honest) as other, connected(lent.attacker) as connection:
        honest = await hose(other)
        attackers = [await hose(connection) for _ in range(4)]
        for attacker in attackers:
            attacker.send(FLOODS["long chains of links"])
        before = await begun(lent)
        honest.send(b"".join(map(chain, range(FLOOD // 4))))
        await honest.until(1 + FLOOD // 4)
        # Were each channel given as much as the honest one, four times as many would be done.
        assert lent.done - before <= 2 * FLOOD // 4


async def test_a_directory_of_hidden_names_is_passed_over_in_steps(root: Path) -> None:
    secrets = root / "mallory" / "secrets"
    secrets.mkdir()
    for number in range(3_000):
        (secrets / f"{number}.pem").touch()
    async with scene(root) as lent, connected(lent.attacker) as connection:
        attacker = await hose(connection)
        opened = await attacker.ask(OPENDIR, string(W + b"secrets"))
        view = lent.plane._leases[lent.attacker.lease].view
        directory = view.open_directory(W + b"secrets")
        assert sum(entry is None for entry in directory.entries_or_pauses()) >= 3_000 // 64
        directory.close()
        page = await attacker.ask(READDIR, string(opened.handle))
        assert page.names == [b".", b".."]


async def test_what_comes_into_a_directory_while_it_is_looked_through_is_seen(root: Path) -> None:
    async with scene(root) as lent, connected(lent.attacker) as connection:
        mover, other = await hose(connection), await hose(connection)
        view = writable(lent)
        with pytest.raises(NotKnownYet) as unknown:
            view.rename(W + b"below/large", W + b"large", replace=False)
        unknown.value.learn()
        # In its present place the link stays inside; in the new one it would leave.
        assert (await other.ask(20, string(b"../../file") + string(W + b"below/large/link"))).status == 0
        with pytest.raises(OSError, match=r"Invalid cross-device link"):
            move(view, b"below/large", b"large")
        assert not (root / "mallory" / "large").exists()
        moved = await mover.ask(14, string(W + b"free") + NO_ATTRIBUTES)
        assert moved.status == 0


@pytest.mark.parametrize("begins_with", ["the link", "the look"])
async def test_what_was_found_out_for_a_move_that_failed_is_not_believed_later(root: Path, begins_with: str) -> None:
    """Of so many directories it can't be told at once whether what was found out still holds."""
    for number in range(2 * QUICK_ENTRIES):
        (root / "mallory" / "below" / "large" / f"dir-{number}").mkdir()
    async with scene(root) as lent, connected(lent.attacker) as connection:
        attacker = await hose(connection)
        view = writable(lent)
        with pytest.raises(NotKnownYet) as unknown:
            view.rename(W + b"below/large", W + b"large", replace=False)
        if begins_with == "the look":
            unknown.value.learn()
        assert (await attacker.ask(20, string(b"../../../file") + string(W + b"below/large/dir-7/link"))).status == 0
        if begins_with == "the link":
            unknown.value.learn()
        with pytest.raises(OSError, match=r"Invalid cross-device link"):
            move(view, b"below/large", b"large")
        # The same directory under another name, which then comes back.
        move(view, b"below/large", b"below/other")
        (root / "mallory" / "below" / "other" / "dir-7" / "link").unlink()
        move(view, b"below/other", b"large")


def writable(lent: Scene) -> WritableView:
    """Return what the attacker's lease shows."""
    view = lent.plane._leases[lent.attacker.lease].view
    assert isinstance(view, WritableView)
    return view


def move(view: WritableView, old: bytes, new: bytes) -> None:
    """Rename as the server does, which finds out what it has to."""
    for _ in range(MAX_LOOKS):
        try:
            return view.rename(W + old, W + new, replace=False)
        except NotKnownYet as unknown:
            unknown.learn()
    raise AssertionError("what is to be found out changes all the time")


async def test_packets_of_one_byte_do_not_hold_the_loop(root: Path) -> None:
    async with scene(root) as lent, connected(lent.honest) as other, connected(lent.attacker) as connection:
        honest, attacker = await hose(other), await hose(connection)
        for byte in path_request(LSTAT, W + b"deep") * FLOOD:
            attacker.send(bytes((byte,)))
        before = await begun(lent)
        assert (await honest.ask(LSTAT, string(W + b"file"))).kind == 105
        assert lent.done - before <= FLOOD // 2


async def test_syncs_are_done_one_by_one_for_a_peer(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = most = 0
    sync = os.fsync

    def counted(fd: int) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        sync(fd)
        at_once -= 1

    monkeypatch.setattr(os, "fsync", counted)
    async with scene(root) as lent, connected(lent.attacker) as connection:
        for attacker in [await hose(connection) for _ in range(4)]:
            opened = await attacker.ask(3, string(W + b"synced") + struct.pack(">II", 2 | 8, 0))
            attacker.send(on_handle(200, b"fsync@openssh.com", string(opened.handle)) * 50)
            await attacker.until(3)
    assert most == 1


async def test_a_session_that_breaks_keeps_nobody_from_their_turn(root: Path) -> None:
    turns, done = Turns(), asyncio.Event()

    class Breaks:
        def work(self) -> None:
            raise RuntimeError("broken")

    class Works:
        def work(self) -> None:
            done.set()

    turns.ask("one", "lease", Breaks())
    turns.ask("two", "lease", Works())
    await done.wait()
    assert turns.waiting == 0


async def test_a_peer_with_many_leases_has_the_turns_of_one() -> None:
    turns, order = Turns(), list[str]()
    finished = asyncio.Event()

    class Works:
        def __init__(self, peer: str, lease: str) -> None:
            self.peer, self.lease = peer, lease

        def work(self) -> None:
            order.append(self.peer)
            for _ in range(20_000):
                pass
            if order.count("honest") < 10:
                turns.ask(self.peer, self.lease, self)
            else:
                finished.set()

    for lease in range(20):
        turns.ask("mallory", str(lease), Works("mallory", str(lease)))
    turns.ask("honest", "one", Works("honest", "one"))
    await finished.wait()
    assert order[:40].count("honest") >= 8
