"""Case C15, and what of C04 and C01 shows on a machine that lacks things."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.daemon.api.delegations import CREATE_DELEGATION, CreateDelegation
from sublet.protocol.errors import ErrorCode, SubletError
from support.daemons import SHELL_AGENT, Daemon, pair, two_daemons
from support.leases import (
    ask,
    delegate,
)

Pair = tuple[Daemon, Daemon]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with two_daemons(tmp_path_factory.mktemp("pair")) as both:
        yield both


WITHOUT_FUSE = """
    set -e
    own=$PATH PATH=/usr/sbin:/usr/bin:/sbin:/bin
    mount --make-rprivate /
    mount -t tmpfs none "$1"
    for name in null zero full random urandom; do : > "$1/$name"; mount --bind "/dev/$name" "$1/$name"; done
    mkdir "$1/shm"
    mount --rbind "$1" /dev
    mount -t tmpfs none "$2"
    shift 2
    PATH=$own exec "$@"
"""
OLD_SSHFS = """#!/bin/sh
case "$1" in -V) echo "SSHFS version 3.7.3";; *) echo "    -o follow_symlinks     follow symlinks on the server";; esac
"""


@pytest.fixture(scope="module")
def bare(daemons: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Path, Path]]:
    """An executor without /dev/fuse, with a PATH that the tests fill, and with one directory that it does not see."""
    if os.geteuid() != 0:
        pytest.skip("hiding a device needs root")
    base = tmp_path_factory.mktemp("bare")
    programs, devices, unseen = base / "bin", base / "dev", base / "unseen"
    for directory in (programs, devices, unseen):
        directory.mkdir()
    for name in ("bwrap", "git", "sh"):
        (programs / name).symlink_to(next(p for p in (Path("/usr/bin") / name, Path("/bin") / name) if p.exists()))
    daemon = Daemon(
        base / "c",
        prefix=["/usr/bin/unshare", "--mount", "/bin/sh", "-c", WITHOUT_FUSE, "sh", str(devices), str(unseen)],
        environ={"PATH": f"{programs}"},
    )
    try:
        daemon.up(agent=SHELL_AGENT)
        pair(daemons[0], daemon, "bare")
        yield daemon, programs, unseen
    finally:
        daemon.down()


def test_c15_a_missing_sshfs_is_named(daemons: Pair, bare: tuple[Daemon, Path, Path], tmp_path: Path) -> None:
    ended = delegate(daemons[0], tmp_path, "true", peer="bare")

    assert ended["state"] == "error"
    assert ended["error"]["code"] == "DEP_MISSING"
    assert "sshfs is not on PATH" in ended["error"]["message"]
    assert "fusermount3 is not on PATH" in ended["error"]["message"]
    assert "Install sshfs" in ended["error"]["hint"]


def test_c15_a_missing_device_is_named(daemons: Pair, bare: tuple[Daemon, Path, Path], tmp_path: Path) -> None:
    daemon, programs, _ = bare
    for name in ("sshfs", "fusermount3"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    try:
        ended = delegate(daemons[0], tmp_path, "true", peer="bare")
        doctor = daemon.json("doctor", check=None)
    finally:
        for name in ("sshfs", "fusermount3"):
            (programs / name).unlink()

    assert ended["error"]["code"] == "DEP_MISSING"
    assert "/dev/fuse does not exist" in ended["error"]["message"]
    assert "sshfs is not on PATH" not in ended["error"]["message"]
    failed = {check["name"]: check["fix"] for check in doctor["checks"] if not check["ok"]}
    assert "modprobe fuse" in failed["fuse-device"]


def test_c04_an_sshfs_without_the_fix_is_refused_and_doctor_names_it(
    daemons: Pair, bare: tuple[Daemon, Path, Path], tmp_path: Path
) -> None:
    daemon, programs, _ = bare
    (programs / "sshfs").write_text(OLD_SSHFS)
    (programs / "sshfs").chmod(0o755)
    try:
        ended = delegate(daemons[0], tmp_path, "true", peer="bare")
        doctor = daemon.json("doctor", check=None)
        told = daemon.run("doctor", check=None).stdout
    finally:
        (programs / "sshfs").unlink()

    assert ended["error"]["code"] == "DEP_MISSING"
    assert "CVE-2026-47187" in ended["error"]["message"]
    assert not doctor["ok"]
    assert "CVE-2026-47187" in next(check["detail"] for check in doctor["checks"] if check["name"] == "sshfs-symlinks")
    assert "CVE-2026-47187" in told


def test_c01_a_path_that_only_the_caller_sees_is_not_found(bare: tuple[Daemon, Path, Path]) -> None:
    daemon, _, unseen = bare
    (unseen / "project").mkdir()
    (unseen / "project" / "here").write_text("on the caller's machine")
    request = CreateDelegation(workspace_dir=str(unseen / "project"), peer="vm", prompt="true")

    with pytest.raises(SubletError) as refused:
        ask(daemon, lambda client: client.call(CREATE_DELEGATION, request))

    assert refused.value.code is ErrorCode.WORKSPACE_NOT_FOUND


def test_a_machine_without_bubblewrap_lends_but_takes_no_work(
    daemons: Pair, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    base = tmp_path_factory.mktemp("unconfined")
    programs = base / "bin"
    programs.mkdir()
    for name in ("sshfs", "fusermount3", "git", "sh"):
        (programs / name).symlink_to(next(p for p in (Path("/usr/bin") / name, Path("/bin") / name) if p.exists()))
    lender = Daemon(base / "d", environ={"PATH": f"{programs}"})
    try:
        lender.up(agent=SHELL_AGENT)
        pair(lender, daemons[1])
        pair(daemons[0], lender, "lender")
        (tmp_path / "file").write_text("x\n")

        lent = delegate(lender, tmp_path, "cat file")
        declined = delegate(daemons[0], tmp_path, "cat file", peer="lender")
    finally:
        lender.down()

    assert lent["state"] == "completed"
    assert declined["error"]["code"] == "DEP_MISSING"
    assert "bubblewrap" in declined["error"]["message"]
    assert "Install bubblewrap" in declined["error"]["hint"]
