"""``git status`` in a mount (case C14) beside OpenSSH's ``internal-sftp`` through the same sshfs, at several distances.

A repository of many files is lent with ``git=ro`` and mounted as a delegation mounts it; the peer is exported whole by
``sshd`` and mounted through the ``ssh`` program. Both connections go through a proxy that holds every byte for half of
the round trip. The first ``git status`` on a fresh mount is the cold one, the next one the warm one. One that is not
counted reads the repository itself before, so that nobody finds it on a cold disk; then the two sides take turns in
coming first, each time on mounts of their own, and the ratio is the median of the rounds' own. Both sides get the same
settings of git; without ``core.checkStat=minimal``, which the lent copy of the configuration has, the peer's would
read every file. Run as ``python benchmarks/git_status.py [--quick] [--far] [--json] [--markdown]``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import asyncssh

import sftp
from _report import Row, add_options, show
from sublet.workspace.export import Export, ExportLimits, LentDirectory
from sublet.workspace.git.repository import look_at
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules

STATUS_SECONDS = 600.0
CHUNK = 65_536
MAX_HELD = 1_024
SETTINGS = ("core.checkStat=minimal", "core.trustctime=false", "core.fsmonitor=false", "safe.directory=*")


@dataclass(frozen=True)
class Size:
    """How many files there are, and at which round trips they are looked at, in ms."""

    files: int
    round_trips: tuple[int, ...]
    near_rounds: int
    """Rounds without a delay, which are short, and which a busy machine disturbs; there is one with a delay."""


FULL = Size(files=10_000, round_trips=(0, 20), near_rounds=7)
QUICK = Size(files=200, round_trips=(0, 10), near_rounds=1)


async def serve(root: Path, public_key: str) -> None:
    """Serve the repository ``root`` for reading until standard input ends."""
    plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"))
    await plane.start("127.0.0.1", 0)
    rules = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], git="ro")
    lent = LentDirectory("workspace", root, "ro", rules, look_at(root).copies or {})
    plane.open(Export(sftp.LEASE, (lent,), public_key, 3600.0, limits=ExportLimits(max_connections=8)))
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(plane.serve())
        print(json.dumps({"port": plane.address[1], "host_key": plane.host_key_line}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        serving.cancel()


async def delay(port: int, one_way: float) -> None:
    """Pass on connections to ``port``, each byte held for ``one_way`` seconds, until standard input ends."""

    async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MAX_HELD)

        async def let_go() -> None:
            while True:
                due, data = await held.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    target.close()
                    return
                target.write(data)
                await target.drain()

        async with asyncio.TaskGroup() as group:
            group.create_task(let_go())
            data = b"-"
            while data:
                data = await source.read(CHUNK)
                await held.put((time.monotonic() + one_way, data))

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(Exception):
            await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))

    async with await asyncio.start_server(serve_one, "127.0.0.1", 0) as server:
        print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


def git(directory: Path, *arguments: str) -> str:
    """Run git with the settings that both sides have, and return what it prints."""
    settings = [word for setting in SETTINGS for word in ("-c", setting)]
    done = subprocess.run(
        ["git", "-C", str(directory), *settings, "-c", "user.name=b", "-c", "user.email=b@x", *arguments],
        env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"},
        capture_output=True,
        text=True,
        check=True,
        timeout=STATUS_SECONDS,
    )
    return done.stdout


def make_repository(root: Path, files: int) -> None:
    """Make a repository of ``files`` small files in directories of a hundred, one of them changed."""
    for number in range(files):
        file = root / f"d{number // 100:03}" / f"f{number % 100:02}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{number}\n" * 20)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "all")
    # What is as young as the index is read again, on both sides.
    os.utime(root / ".git" / "index", (time.time() + 2, time.time() + 2))
    (root / "d000" / "f00.txt").write_text("changed\n")


def status_seconds(mount: Path) -> tuple[float, float]:
    """Return how long the first and the second ``git status`` take."""
    taken = []
    for _ in range(2):
        began = time.perf_counter()
        assert git(mount, "status", "--porcelain") == " M d000/f00.txt\n"
        taken.append(time.perf_counter() - began)
    return taken[0], taken[1]


def run(size: Size) -> list[Row]:
    """Set everything up, measure, and take it all down."""
    rows = []
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sublet-bench-")))
        root = home / "project"
        root.mkdir()
        make_repository(root, size.files)
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(home / "key")
        (home / "key").chmod(0o600)
        public_key = key.export_public_key().decode().strip()
        ours = stack.enter_context(sftp.child("serve", str(root), public_key, program=__file__))
        peer_port, peer_key = stack.enter_context(sftp.openssh_server(home, public_key))
        git(root, "status", "--porcelain")
        for round_trip in size.round_trips:
            found: dict[str, list[tuple[float, float]]] = {"product": [], "peer": []}
            for number in range(1 if round_trip else size.near_rounds):
                with contextlib.ExitStack() as mounts:
                    ports = [
                        int(mounts.enter_context(sftp.child("delay", *words, program=__file__))["port"])
                        for words in ((str(ours["port"]), str(round_trip)), (str(peer_port), str(round_trip)))
                    ]
                    name = f"{round_trip}-{number}"
                    arguments = ("mount", str(ports[0]), ours["host_key"], str(home / "key"), str(home / f"m{name}"))
                    product = Path(mounts.enter_context(sftp.child(*arguments))["path"])
                    peer = mounts.enter_context(
                        sftp.ssh_mount(home, f"peer{name}", ports[1], getpass.getuser(), peer_key, str(root))
                    )
                    sides = [("product", product), ("peer", peer)]
                    for side, mount in sides if number % 2 else reversed(sides):
                        found[side].append(status_seconds(mount))
            for place, kind in enumerate(("cold", "warm")):
                mine, theirs = ([taken[place] for taken in found[side]] for side in ("product", "peer"))
                ratios = [m / t for m, t in zip(mine, theirs, strict=True)]
                rows.append(
                    Row(
                        f"git status, {size.files:,} files, {round_trip} ms, {kind}",
                        statistics.median(mine),
                        "s",
                        f"ratios {min(ratios):.2f} to {max(ratios):.2f}" if len(ratios) > 1 else "",
                        peer=f"{statistics.median(theirs):.2f} s",
                        ratio=statistics.median(ratios),
                    )
                )
    return rows


def main() -> None:
    """Run the role that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer files, shorter distances")
    parser.add_argument("--far", action="store_true", help="also at 80 ms, which takes a quarter of an hour")
    add_options(parser)
    parser.add_argument("role", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    match arguments.role:
        case ["serve", root, public_key]:
            asyncio.run(serve(Path(root), public_key))
        case ["delay", port, round_trip]:
            asyncio.run(delay(int(port), int(round_trip) / 2000))
        case _:
            size = QUICK if arguments.quick else FULL
            if arguments.far:
                size = replace(size, round_trips=(*size.round_trips, 80))
            show("git_status", run(size), arguments)


if __name__ == "__main__":
    main()
