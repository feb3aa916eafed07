"""What a confined process can reach, tried from inside a real bubblewrap."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import asyncssh
import pytest

from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.supervisor.launch import Launch, Sandbox
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox, PlainLaunch, Unsandboxed
from sublet.workspace.ssh.connection import connect
from support.sftp_lender import files_of, lender


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    return work


def run(
    sandbox: Sandbox,
    script: str,
    work: Path,
    *,
    readable: Sequence[Path] = (),
    allow_network: bool = False,
    env: dict[str, str] | None = None,
) -> tuple[int, str]:
    """Run a shell script confined to ``work`` and return its exit status and output."""
    launch = Launch(["sh", "-c", script], env or {}, work, [work], readable, allow_network)
    given = {"PATH": "/usr/bin:/bin", **launch.env}
    done = subprocess.run(sandbox.wrap(launch), env=given, capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, done.stdout + done.stderr


def test_both_sandboxes_have_the_shape_that_the_supervisor_asks_for() -> None:
    sandboxes: list[Sandbox] = [BubblewrapSandbox(), Unsandboxed()]
    assert [sorted(sandbox.enforced) for sandbox in sandboxes] == [["allow_network", "cwd_only"], []]
    launch = PlainLaunch(argv=("true",), cwd=Path("/"))
    assert Unsandboxed().wrap(launch) == ["true"]


def test_ordinary_work_works(work: Path) -> None:
    script = (
        "pwd; echo text >file; python3 -c 'print(6*7)'; mktemp -d /tmp/x.XXX; git init -q . && git status -s; id -u"
    )
    status, output = run(BubblewrapSandbox(), script, work)
    assert status == 0, output
    assert output.startswith(f"{work}\n42\n/tmp/x.")
    assert (work / "file").read_text() == "text\n"


def test_the_hosts_files_are_not_there(work: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    _, output = run(BubblewrapSandbox(), f"ls -A / /etc /home /root /tmp {tmp_path}; cat {secret}", work)
    assert "shadow" not in output
    assert f"cat: {secret}: No such file" in output
    status, output = run(BubblewrapSandbox(), f"ls -A {tmp_path} /tmp", work)
    assert f"{tmp_path}:\nwork\n" in output
    for path in (Path("/var/lib"), Path(sys.prefix), Path(__file__), Path("/var/log"), Path("/run/dbus"), Path("/sys")):
        status, output = run(BubblewrapSandbox(), f"ls {path}", work)
        assert status != 0, (path, output)


def test_nothing_but_the_writable_directory_and_tmp_can_be_written(work: Path) -> None:
    for path in ("/usr/x", "/etc/x", "/x", "/dev/x", "/home/x"):
        status, output = run(BubblewrapSandbox(), f"touch {path}", work)
        assert status != 0, (path, output)
    beside = work.parent / "beside"
    assert run(BubblewrapSandbox(), f"touch /tmp/x /var/tmp/y {beside}", work)[0] == 0
    assert not beside.exists()


def test_a_mask_wins_over_a_readable_directory_that_covers_it(work: Path, tmp_path: Path) -> None:
    shared, keys = tmp_path / "shared", tmp_path / "shared" / "home" / ".ssh"
    keys.mkdir(parents=True)
    (keys / "id").write_text("key")
    (shared / "token").write_text("token")
    (shared / "open").write_text("open")
    sandbox = BubblewrapSandbox(masked=[keys, shared / "token", tmp_path / "missing"])
    script = f"cat {shared}/open; cat {shared}/token; ls -A {keys}; touch {keys}/x; cat {keys}/id"
    status, output = run(sandbox, script, work, readable=[shared])
    assert status != 0
    assert output.startswith("open")
    assert "key" not in output.replace(str(keys), "")
    assert f"{shared}/token: Permission denied" in output
    assert not (keys / "x").exists()


def test_the_lease_stays_visible_below_a_masked_mount_root_and_the_others_do_not(tmp_path: Path) -> None:
    home = tmp_path / "home"
    lease, other, scratch = home / "mounts" / "a", home / "mounts" / "b", home / "scratch"
    for directory in (lease, other, scratch):
        directory.mkdir(parents=True)
        (directory / "file").write_text(directory.name)
    sandbox = BubblewrapSandbox(masked=[home, home / "mounts"])
    argv = ["sh", "-c", f"cat {lease}/file {scratch}/file; ls {home}/mounts; cat {other}/file"]
    for writable, readable in (([lease, scratch], [home.parent]), ([scratch], [lease, home.parent])):
        launch = Launch(argv, {}, lease, writable, readable, False)
        done = subprocess.run(sandbox.wrap(launch), capture_output=True, text=True, timeout=20, check=False)
        assert done.stdout == "ascratcha\n", done
        assert done.returncode != 0


def test_a_readable_path_inside_a_mask_is_refused_also_through_a_link(work: Path, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "hidden")
    sandbox = BubblewrapSandbox(masked=[tmp_path / "hidden"])
    for path in (tmp_path / "hidden", tmp_path / "link"):
        with pytest.raises(SubletError, match="stays hidden") as caught:
            sandbox.wrap(Launch(["true"], {}, work, [work], [path], False))
        assert caught.value.code == LocalCode.POLICY_DENIED


def test_a_readable_link_leads_to_what_it_names(work: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("through the link")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    status, output = run(BubblewrapSandbox(), f"cat {tmp_path}/link/file", work, readable=[tmp_path / "link"])
    assert (status, output) == (0, "through the link")


@pytest.mark.parametrize("path", ["relative", "/a/../etc"])
def test_a_path_that_is_not_absolute_is_refused(path: str, work: Path) -> None:
    with pytest.raises(SubletError):
        BubblewrapSandbox().wrap(Launch(["true"], {}, work, [Path(path)], [], False))


def test_the_hosts_processes_are_neither_seen_nor_signalled(work: Path) -> None:
    status, output = run(BubblewrapSandbox(), f"ls /proc | grep -c '^[0-9]'; kill -0 {os.getpid()}", work)
    assert status != 0
    assert int(output.split()[0]) < 10
    for name in ("pid", "ipc", "uts", "net", "cgroup", "mnt"):
        ours = os.readlink(f"/proc/self/ns/{name}")
        assert run(BubblewrapSandbox(), f"readlink /proc/self/ns/{name}", work)[1].strip() != ours, name


def test_the_environment_is_what_was_given_and_stands_in_no_argv(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "hunter2")
    launch = Launch(["env"], {"GIVEN": "token-9"}, work, [work], [], False)
    argv = BubblewrapSandbox().wrap(launch)
    assert not any("token-9" in argument for argument in argv)
    _, output = run(BubblewrapSandbox(), "env; cat /proc/1/environ", work, env={"GIVEN": "token-9"})
    assert "GIVEN=token-9" in output
    assert "hunter2" not in output


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_the_network_is_there_only_where_it_is_allowed(work: Path, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    script = f'python3 -c \'import socket; socket.create_connection(("127.0.0.1", {port}), 3); print("in")\''
    status, output = run(BubblewrapSandbox(), script, work)
    assert status != 0
    assert "refused" in output
    assert run(BubblewrapSandbox(), script, work, allow_network=True) == (0, "in\n")
    # What a test suite does with its own loopback goes on working.
    listen = 'a = s.create_server(("localhost", 0)); s.create_connection(a.getsockname())'
    script = f"python3 -c 'import socket as s; {listen}'"
    assert run(BubblewrapSandbox(), script, work) == (0, "")


def test_a_unix_socket_of_the_host_is_out_of_reach(work: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as abstract:
        server.bind(str(tmp_path / "control.sock"))
        server.listen()
        abstract.bind(f"\0sublet-test-{os.getpid()}")
        abstract.listen()
        for address in (str(tmp_path / "control.sock"), f"\\0sublet-test-{os.getpid()}"):
            script = f"python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{address}\")'"
            assert run(BubblewrapSandbox(), script, work)[0] != 0, address


def test_it_gains_no_rights_that_root_has(work: Path) -> None:
    _, output = run(BubblewrapSandbox(), "grep -E 'CapEff|CapPrm|NoNewPrivs' /proc/self/status", work)
    assert output.split() == ["CapPrm:", "0" * 16, "CapEff:", "0" * 16, "NoNewPrivs:", "1"]
    for script in ("mount -t tmpfs x /tmp", "umount /etc/passwd", "mknod x b 8 0", "mount -o remount,rw /usr"):
        assert run(BubblewrapSandbox(), script, work)[0] != 0, script


def test_it_changes_no_setting_of_the_kernel_whatever_its_user_owns(work: Path) -> None:
    script = """
        for name in kernel/core_pattern kernel/hostname vm/overcommit_memory; do
            (cat /proc/sys/$name > /tmp/now && cat /tmp/now > /proc/sys/$name) 2>/dev/null && echo WROTE $name
        done
        find /proc -path '/proc/[0-9]*' -prune -o -type f -writable -print 2>/dev/null |
            grep -v '^/proc/self/'; echo end
    """
    assert run(BubblewrapSandbox(), script, work) == (0, "end\n")


def test_it_works_for_an_ordinary_user() -> None:
    with tempfile.TemporaryDirectory(prefix="sublet-test-") as directory:
        work = Path(directory)
        os.chmod(work, 0o777)
        launch = Launch(["sh", "-c", "echo $(id -u) >file; ls -A /home /root"], {}, work, [work], [], False)
        argv = BubblewrapSandbox().wrap(launch)
        become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        done = subprocess.run([*become, *argv], capture_output=True, text=True, timeout=20, check=False)
        assert "No such file" in done.stderr, done
        assert (work / "file").read_text().strip() == str(65534 if become else os.geteuid())


def test_its_processes_end_with_it(work: Path) -> None:
    marker = f"31{os.getpid()}"
    run(BubblewrapSandbox(), f"setsid sleep {marker} >/dev/null 2>&1 & sleep 0.2", work)
    listed = subprocess.run(["pgrep", "-f", f"^sleep {marker}"], capture_output=True, timeout=10, check=False)
    assert listed.returncode == 1


def test_without_bubblewrap_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox = BubblewrapSandbox()
    with pytest.raises(SubletError, match="bwrap") as caught:
        sandbox.wrap(PlainLaunch(argv=("true",), cwd=tmp_path, writable=(tmp_path,)))
    assert caught.value.code == ErrorCode.DEP_MISSING


@pytest.mark.anyio
async def test_it_works_over_a_mount_and_sees_no_other(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    export = tmp_path / "export"
    export.mkdir()
    (export / "in").write_text("lent\n")
    mounts = Mounts(tmp_path / "home" / "mounts")
    async with lender(files_of(export), key) as target, await connect(target, key, 5) as connection:
        mine = await mounts.attach(mounts.reserve("mine"), connection)
        other = await mounts.attach(mounts.reserve("other"), connection)
        try:
            sandbox = BubblewrapSandbox(masked=[tmp_path / "home", mounts.root])
            script = f"cat in; echo out >out; ls {mounts.root}; cat {other.path}/in; grep -c sshfs /proc/self/mountinfo"
            launch = Launch(["sh", "-c", script], {}, mine.path, [mine.path], [], False)
            argv = await asyncio.to_thread(sandbox.wrap, launch)
            process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            output, errors = await process.communicate()
            assert output == b"lent\nmine\n1\n", errors
            assert b"No such file" in errors
            assert (export / "out").read_text() == "out\n"
        finally:
            assert await mine.detach()
            assert await other.detach()
