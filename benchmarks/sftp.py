"""The data plane beside OpenSSH's ``internal-sftp``, through the same sshfs, in rounds that alternate.

Three mounts of one directory are compared:

- ``server``: our server, mounted through the ``ssh`` program exactly like the peer; the goals are about this one;
- ``product``: our server, and our client that feeds ``sshfs -o passive``: what a delegation uses;
- ``peer``: OpenSSH's ``sshd`` with ``internal-sftp``, mounted through the ``ssh`` program.

Servers and our client are processes of their own, so this one may look into every mount. Absolute figures depend on the
machine and its mood; the ratios are what counts. Run as ``python benchmarks/sftp.py [--quick] [--json] [--markdown]``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import asyncssh

from _report import Row, add_options, show
from sublet.workspace.export import Export, ExportLimits, LentDirectory, MountTarget
from sublet.workspace.mount.mount import OPTIONS
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.ssh.connection import connect
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules

LEASE = "dlg_00000000000000000000000000000000"
CIPHER = "aes128-gcm@openssh.com"
OURS = ("server", "product")
ENGINES = (*OURS, "peer")
BLOCK = 1 << 20
LISTED = 10_000
START_SECONDS = 15.0
SSHFS_OPTIONS = ",".join(option for option in OPTIONS.split(",") if option != "passive")


@dataclass(frozen=True)
class Size:
    """How much of everything is done in each round."""

    rounds: int
    sequential: int
    files: int
    stats: int


FULL = Size(rounds=9, sequential=256 * BLOCK, files=1000, stats=2000)
QUICK = Size(rounds=2, sequential=64 * BLOCK, files=300, stats=600)


# the two processes of ours


async def serve(root: Path, public_key: str) -> None:
    """Serve ``root`` until standard input ends."""
    plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"))
    await plane.start("127.0.0.1", 0)
    plane.open(
        Export(
            lease_id=LEASE,
            resources=(LentDirectory("workspace", root, "rw", Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, ())),),
            public_key=public_key,
            seconds=3600.0,
            limits=ExportLimits(max_connections=8),
        )
    )
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(plane.serve())
        print(json.dumps({"port": plane.address[1], "host_key": plane.host_key_line}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        serving.cancel()


async def mount(port: int, host_key: str, key_file: Path, mount_root: Path) -> None:
    """Mount our server with our client until standard input ends."""
    target = MountTarget("127.0.0.1", port, LEASE, host_key)
    connection = await connect(target, asyncssh.read_private_key(key_file), START_SECONDS)
    mounts = Mounts(mount_root)
    mounted = await mounts.attach(mounts.reserve(LEASE), connection, "/workspace")
    print(json.dumps({"path": str(mounted.path)}), flush=True)
    try:
        await asyncio.to_thread(sys.stdin.read)
    finally:
        await mounted.detach()
        connection.close()
        await connection.wait_closed()


@contextlib.contextmanager
def child(*arguments: str, program: str = __file__) -> Iterator[dict[str, str]]:
    """Run ``program``, this one by default, in another role and yield what it says once it is ready."""
    argv = [sys.executable, program, *arguments]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = _line(process.stdout)
        if not line:
            raise SystemExit(f"{arguments[0]} did not start")
        yield json.loads(line)
    finally:
        process.stdin.close()
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _line(stream: IO[str]) -> str:
    return stream.readline()


# the peer


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextlib.contextmanager
def openssh_server(
    home: Path, public_key: str, address: str = "127.0.0.1", prefix: Sequence[str] = ()
) -> Iterator[tuple[int, str]]:
    """Run an ``sshd`` of our own, and yield its port and public host key; ``prefix`` runs it somewhere else."""
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    host_key.write_private_key(home / "host_key")
    (home / "host_key").chmod(0o600)
    (home / "authorized_keys").write_text(public_key + "\n")
    port = free_port()
    (home / "sshd_config").write_text(
        f"ListenAddress {address}\nPort {port}\nHostKey {home}/host_key\nAuthorizedKeysFile {home}/authorized_keys\n"
        f"PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        f"Subsystem sftp internal-sftp\nCiphers {CIPHER}\nLogLevel ERROR\nMaxStartups 100\n"
    )
    privilege_separation = Path("/run/sshd")
    made = os.geteuid() == 0 and not privilege_separation.exists()
    if made:
        privilege_separation.mkdir(mode=0o755)
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if sshd is None:
        raise SystemExit("sshd is missing: install openssh-server to compare with it")
    process = subprocess.Popen([*prefix, sshd, "-D", "-e", "-f", str(home / "sshd_config")], stderr=subprocess.DEVNULL)
    try:
        _wait_for_port(address, port, prefix)
        yield port, host_key.export_public_key().decode().strip()
    finally:
        process.terminate()
        process.wait()
        if made:
            with contextlib.suppress(OSError):
                privilege_separation.rmdir()


def _wait_for_port(address: str, port: int, prefix: Sequence[str]) -> None:
    knock = [*prefix, sys.executable, "-c", f"import socket; socket.create_connection(({address!r}, {port}))"]
    until = time.monotonic() + START_SECONDS
    while True:
        if subprocess.run(knock, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return
        if time.monotonic() > until:
            raise SystemExit("sshd did not start")
        time.sleep(0.02)


def write_ssh_config(home: Path, name: str, port: int, user: str, host_key: str, address: str = "127.0.0.1") -> None:
    """Write ``config_NAME``, by which OpenSSH's programs reach a server as host ``bench``."""
    (home / f"known_{name}").write_text(f"[{address}]:{port} {host_key}\n")
    (home / f"config_{name}").write_text(
        f"Host bench\nHostName {address}\nPort {port}\nUser {user}\nIdentityFile {home}/key\nIdentitiesOnly yes\n"
        f"UserKnownHostsFile {home}/known_{name}\nStrictHostKeyChecking yes\nBatchMode yes\nCiphers {CIPHER}\n"
        f"Compression no\nLogLevel ERROR\n"
    )


@contextlib.contextmanager
def ssh_mount(
    home: Path,
    name: str,
    port: int,
    user: str,
    host_key: str,
    remote: str,
    *,
    address: str = "127.0.0.1",
    options: str = SSHFS_OPTIONS,
    prefix: Sequence[str] = (),
) -> Iterator[Path]:
    """Mount ``remote`` by ordinary sshfs through the ``ssh`` program; ``prefix`` runs both somewhere else."""
    write_ssh_config(home, name, port, user, host_key, address)
    point = home / f"mount_{name}"
    point.mkdir()
    subprocess.run(
        [*prefix, "sshfs", "-F", str(home / f"config_{name}"), "-o", options, f"bench:{remote}", str(point)],
        check=True,
        timeout=START_SECONDS,
    )
    try:
        yield point
    finally:
        subprocess.run(["fusermount3", "-u", "-z", str(point)], check=False)


# the figures


def measure_write(directory: Path, _: Path, size: Size) -> float:
    """Return MB/s of one sequential write, its close included."""
    block = os.urandom(BLOCK)
    began = time.perf_counter()
    with (directory / "written").open("wb", buffering=0) as file:
        for _n in range(size.sequential // BLOCK):
            file.write(block)
    return size.sequential / 1e6 / (time.perf_counter() - began)


def measure_read(directory: Path, behind: Path, size: Size) -> float:
    """Return MB/s of one sequential read of a file that this mount has not seen."""
    os.link(behind.parent / "big", behind / "read")
    began = time.perf_counter()
    total = 0
    with (directory / "read").open("rb", buffering=0) as file:
        while data := file.read(BLOCK):
            total += len(data)
    assert total == size.sequential
    return total / 1e6 / (time.perf_counter() - began)


def measure_create(directory: Path, _: Path, size: Size) -> float:
    """Return files per second, each created, written once and closed."""
    began = time.perf_counter()
    for number in range(size.files):
        with (directory / f"small{number}").open("xb", buffering=0) as file:
            file.write(b"x" * 100)
    return size.files / (time.perf_counter() - began)


def measure_stat(directory: Path, behind: Path, size: Size) -> float:
    """Return first looks at a name per second."""
    for number in range(size.stats):
        (behind / f"known{number}").touch()
    began = time.perf_counter()
    for number in range(size.stats):
        os.lstat(directory / f"known{number}")
    return size.stats / (time.perf_counter() - began)


def measure_list(directory: Path, behind: Path, _: Size) -> float:
    """Return entries per second of one long listing."""
    (behind / "long").mkdir()
    for number in range(LISTED):
        (behind / "long" / f"entry{number:05}").touch()
    began = time.perf_counter()
    assert len(os.listdir(directory / "long")) == LISTED
    return LISTED / (time.perf_counter() - began)


@dataclass(frozen=True)
class Figure:
    """One thing that is measured, in ``unit``; ``goal`` is the ratio to the peer that DESIGN 12 sets."""

    name: str
    unit: str
    goal: float
    measure: Callable[[Path, Path, Size], float]


FIGURES = (
    Figure("write", "MB/s", 0.95, measure_write),
    Figure("read", "MB/s", 0.95, measure_read),
    Figure("create", "files/s", 0.85, measure_create),
    Figure("stat", "stats/s", 0.85, measure_stat),
    Figure("list 10,000", "names/s", 0.95, measure_list),
)


def compare(root: Path, mounts: dict[str, Path], size: Size) -> list[Row]:
    """Measure every figure on every mount, round by round, and return medians and paired ratios."""
    with (root / "big").open("wb") as big:
        for _ in range(size.sequential // BLOCK):
            big.write(os.urandom(BLOCK))
    found: dict[str, dict[str, list[float]]] = {f.name: {e: [] for e in ENGINES} for f in FIGURES}
    for number in range(size.rounds):
        for figure in FIGURES:
            # each engine comes first, second and last in turn
            for place in range(len(ENGINES)):
                engine = ENGINES[(number + place) % len(ENGINES)]
                name = f"{figure.measure.__name__}-{number}-{engine}"
                (root / name).mkdir()
                found[figure.name][engine].append(figure.measure(mounts[engine] / name, root / name, size))
                shutil.rmtree(root / name)
    rows = []
    for figure in FIGURES:
        values = found[figure.name]
        peer = f"{statistics.median(values['peer']):,.0f} {figure.unit}"
        for engine in OURS:
            ratios = [mine / theirs for mine, theirs in zip(values[engine], values["peer"], strict=True)]
            ratio = statistics.median(ratios)
            has_goal = engine == "server"
            rows.append(
                Row(
                    f"{figure.name}, {engine}",
                    statistics.median(values[engine]),
                    figure.unit,
                    f"ratios {min(ratios):.2f} to {max(ratios):.2f}",
                    f"ratio ≥ {figure.goal:.2f}" if has_goal else "",
                    ratio >= figure.goal if has_goal else None,
                    peer,
                    ratio,
                )
            )
    return rows


def run(size: Size, base: Path | None) -> list[Row]:
    """Set everything up, compare, and take it all down."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sublet-bench-")))
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sublet-bench-", dir=base)))
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(home / "key")
        (home / "key").chmod(0o600)
        public_key = key.export_public_key().decode().strip()
        ours = stack.enter_context(child("serve", str(root), public_key))
        port = int(ours["port"])
        mounted = stack.enter_context(child("mount", str(port), ours["host_key"], str(home / "key"), str(home / "m")))
        server = stack.enter_context(ssh_mount(home, "server", port, LEASE, ours["host_key"], "/workspace"))
        peer_port, peer_key = stack.enter_context(openssh_server(home, public_key))
        peer = stack.enter_context(ssh_mount(home, "peer", peer_port, getpass.getuser(), peer_key, str(root)))
        return compare(root, {"server": server, "product": Path(mounted["path"]), "peer": peer}, size)


def main() -> None:
    """Run the role that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--base", type=Path, help="where the exported directory is made; default: memory, else TMPDIR")
    add_options(parser)
    parser.add_argument("role", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    match arguments.role:
        case ["serve", root, public_key]:
            asyncio.run(serve(Path(root), public_key))
        case ["mount", port, host_key, key_file, mount_root]:
            asyncio.run(mount(int(port), host_key, Path(key_file), Path(mount_root)))
        case _:
            memory = Path("/dev/shm")
            base = arguments.base or (memory if os.access(memory, os.W_OK) else None)
            show("sftp", run(QUICK if arguments.quick else FULL, base), arguments)


if __name__ == "__main__":
    main()
