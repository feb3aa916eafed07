"""How fast a tree travels by each transport, beside ``scp -r`` from OpenSSH's sshd.

One run brings the same tree to the executor's side in four ways, in rounds in which each comes first, second, third and
last in turn: as an archive, as a git repository, by mounting it and copying what is there, and by ``scp -r``. All have
one connection over loopback with the same cipher. The lenders are processes of their own, as the peer is.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import asyncssh

import sftp
from _report import Row, add_options, show
from sublet.protocol.bounds import TransportName
from sublet.workspace.archive.carrier import ArchiveCarrier
from sublet.workspace.archive.tar_format import TarLimits
from sublet.workspace.bundles.carrier import GitCarrier
from sublet.workspace.carrier import Carrier
from sublet.workspace.export import Export, LentDirectory, MountTarget
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.ssh.connection import connect
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules

WAYS: tuple[TransportName, ...] = ("archive", "git", "sshfs")
PEER = "scp -r"
LIMITS = TarLimits(100_000, 1 << 30, 1 << 30)
COPY_SECONDS = 300.0


@dataclass(frozen=True)
class Size:
    """How many files a tree has in directories of 50, how many bytes all together, and how many rounds are run."""

    files: int
    total: int
    rounds: int


FULL = Size(files=2_000, total=50_000_000, rounds=8)
QUICK = Size(files=100, total=1_000_000, rounds=2)


async def serve(root: Path, public_key: str, scratch: Path) -> None:
    """Serve ``root`` by every transport until standard input ends; the lease is named as the transport."""
    plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"), scratch=scratch)
    await plane.start("127.0.0.1", 0)
    lent = (LentDirectory("workspace", root, "rw", Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, ())),)
    for way in WAYS:
        plane.open(Export(way, lent, public_key, 3600.0, transport=way))
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(plane.serve())
        print(json.dumps({"port": plane.address[1], "host_key": plane.host_key_line}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        serving.cancel()


def make_tree(root: Path, size: Size) -> None:
    """Fill ``root``."""
    for number in range(size.files):
        directory = root / f"d{number // 50}"
        directory.mkdir(exist_ok=True)
        (directory / f"f{number}").write_bytes(os.urandom(size.total // size.files))


def check(copy: Path, size: Size) -> None:
    """Make sure that all of it has come."""
    found = [path.stat().st_size for path in copy.glob("d*/f*")]
    if len(found) != size.files or sum(found) != size.total // size.files * size.files:
        raise SystemExit(f"{copy} is not whole")


async def bring(carrier: Carrier, way: str, target: MountTarget, key: asyncssh.SSHKey, size: Size) -> float:
    """Return the seconds from the connection to the tree at the executor, and let go of it."""
    began = time.perf_counter()
    connection = await connect(target, key, sftp.START_SECONDS)
    view = await carrier.attach(carrier.reserve(f"dlg_{way}"), connection, "/")
    try:
        tree = view.path / "workspace"
        if way == "sshfs":
            copy = view.path.with_name("copy")
            await asyncio.to_thread(shutil.copytree, tree, copy)
            took = time.perf_counter() - began
            check(copy, size)
            shutil.rmtree(copy)
        else:
            took = time.perf_counter() - began
            check(tree, size)
    finally:
        await view.detach(flush=False)
        connection.close()
        await connection.wait_closed()
    return took


def copy_by_scp(home: Path, root: Path, size: Size) -> float:
    """Return the seconds of ``scp -r``."""
    copy = home / "scp"
    began = time.perf_counter()
    argv = ["scp", "-q", "-r", "-F", str(home / "config_peer"), f"bench:{root}", str(copy)]
    subprocess.run(argv, check=True, timeout=COPY_SECONDS)
    took = time.perf_counter() - began
    check(copy, size)
    shutil.rmtree(copy)
    return took


def run(size: Size) -> list[Row]:
    """Set everything up, compare, and take it all down."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sublet-bench-")))
        root = home / "lent"
        root.mkdir()
        make_tree(root, size)
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(home / "key")
        (home / "key").chmod(0o600)
        public_key = key.export_public_key().decode().strip()
        arguments = ("serve", str(root), public_key, str(home / "scratch"))
        ours = stack.enter_context(sftp.child(*arguments, program=__file__))
        port, host_key = stack.enter_context(sftp.openssh_server(home, public_key))
        sftp.write_ssh_config(home, "peer", port, getpass.getuser(), host_key)
        carriers: dict[str, Carrier] = {
            "archive": ArchiveCarrier(home / "work", lambda: LIMITS),
            "git": GitCarrier(home / "clones", lambda: LIMITS),
            "sshfs": Mounts(home / "mounts"),
        }

        def ours_by(way: str) -> Callable[[], float]:
            target = MountTarget("127.0.0.1", int(ours["port"]), way, ours["host_key"])
            return lambda: asyncio.run(bring(carriers[way], way, target, key, size))

        measures: dict[str, Callable[[], float]] = {way: ours_by(way) for way in WAYS}
        measures[PEER] = lambda: copy_by_scp(home, root, size)
        return compare(measures, size)


def compare(measures: dict[str, Callable[[], float]], size: Size) -> list[Row]:
    """Measure every way in rounds, and return medians and paired ratios."""
    names = list(measures)
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(size.rounds):
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            found[name].append(measures[name]())
    peer = found[PEER]
    tree = f"{size.files:,} files, {size.total // 1_000_000} MB"
    return [
        Row(
            what=f"{'sshfs and copy' if way == 'sshfs' else way}, {tree}",
            value=statistics.median(found[way]),
            unit="s",
            detail=f"{min(found[way]):.2f} to {max(found[way]):.2f}",
            peer=f"{statistics.median(peer):.2f} s",
            ratio=statistics.median(own / other for own, other in zip(found[way], peer, strict=True)),
        )
        for way in WAYS
    ]


def main() -> None:
    """Run the role that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small tree, and few rounds")
    add_options(parser)
    parser.add_argument("role", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    match arguments.role:
        case ["serve", root, public_key, scratch]:
            asyncio.run(serve(Path(root), public_key, Path(scratch)))
        case _:
            show("transports", run(QUICK if arguments.quick else FULL), arguments)


if __name__ == "__main__":
    main()
