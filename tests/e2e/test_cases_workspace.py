"""Cases C01, C02, C04, C05, C07, C08 and C10, through real daemons, mounts and sandboxes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sublet.daemon.api.delegations import CREATE_DELEGATION, CreateDelegation
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Done, Progress
from sublet.workspace.ssh.connection import LINK_LOSS_SECONDS
from support.daemons import Daemon, two_daemons, wait_for
from support.hostile_lender import HostileLender
from support.leases import (
    ask,
    begin,
    conditions,
    delegate,
    finish,
    marker,
    mount_of,
    process_state,
    processes_with,
    restart,
    tree,
)

STATED_SECONDS = 15
"""What DESIGN 12 promises from the loss of a link to the error in the program."""
NO_PRIVATE_KEYS = {
    "version": 1,
    "global": [{"id": "no-keys", "effect": "deny", "action": "workspace.reveal", "resource": "id_*"}],
}

Pair = tuple[Daemon, Daemon]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with two_daemons(tmp_path_factory.mktemp("pair"), policy=NO_PRIVATE_KEYS) as both:
        yield both


# C01: the directory that is meant, or a typed error


@pytest.mark.parametrize("given", ["project", "./project", "../project", "", "~/project", "host:/project"])
def test_c01_a_relative_path_is_never_looked_for_anywhere(daemons: Pair, given: str) -> None:
    request = CreateDelegation(workspace_dir=given, peer="bob", prompt="true")

    with pytest.raises(SubletError) as refused:
        ask(daemons[0], lambda client: client.call(CREATE_DELEGATION, request))

    assert refused.value.code is ErrorCode.WORKSPACE_INVALID


def test_c01_an_absent_path_and_a_file_are_typed_errors(daemons: Pair, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    absent = delegate(daemons[0], tmp_path / "absent", "true")
    file = delegate(daemons[0], tmp_path / "file", "true")

    assert absent["error"]["code"] == "WORKSPACE_NOT_FOUND"
    assert "the machine that has the directory" in absent["error"]["hint"]
    assert file["error"]["code"] == "WORKSPACE_INVALID"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


# C02: a dead link becomes an error, soon, and hangs nothing


SEES_AN_ERROR_AND_GOES_ON = """
touch started; n=0
until stat absent-$n 2>&1 | grep -q Input/output; do n=$((n+1)); sleep 0.2; done
until ls deep >/dev/null 2>&1; do sleep 0.2; done
echo back > result
"""


def test_c02_a_frozen_lender_hangs_nothing_and_the_mount_comes_back(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    (tmp_path / "deep").mkdir()
    id_ = begin(delegator, tmp_path, SEES_AN_ERROR_AND_GOES_ON)
    wait_for((tmp_path / "started").exists, 30, "the work")
    workspace = mount_of(executor, id_) / "workspace"
    assert (workspace / "started").exists()

    delegator.kill(signal.SIGSTOP)
    try:
        began = time.monotonic()
        looks = [
            subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for argv in (["stat", str(workspace / "never-seen")], ["ls", str(workspace / "deep")])
        ]
        assert executor.json("status")["assignments_active"] == 1  # it answers while calls in the mount hang
        ended = [look.wait(timeout=STATED_SECONDS) for look in looks]
        took = time.monotonic() - began
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            os.stat(workspace / "never-seen-either")
    finally:
        delegator.kill(signal.SIGCONT)

    assert all(ended), "calls in a mount without its link must fail, not answer"
    assert took <= STATED_SECONDS
    assert LINK_LOSS_SECONDS <= STATED_SECONDS
    assert all(process_state(look.pid) == "" for look in looks)
    end = finish(delegator, id_)
    assert str(end.state) == "completed", end.error
    assert (tmp_path / "result").read_text() == "back\n"
    assert end.result is not None
    assert end.result.link_losses == 1
    assert end.result.interrupted_operations >= 2
    assert end.audit is not None
    assert sorted(end.audit.added) == ["result", "started"]
    assert "degraded" in conditions(delegator, id_)
    assert "was lost" in delegator.run("output", id_).stdout
    assert executor.mounts == []


# C04: a rogue SFTP server


@pytest.mark.anyio
async def test_c04_links_of_a_rogue_server_lead_nowhere(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    canary = tmp_path / "canary"
    canary.write_text("the executor's own file")
    rogue = tmp_path / "rogue"
    (rogue / "workspace" / "sub").mkdir(parents=True)
    (rogue / "meta").mkdir()
    links = {"passwd": "/etc/passwd", "canary": str(canary), "up": "../../../../../../etc/passwd", "root": "/"}
    for name, target in links.items():
        (rogue / "workspace" / name).symlink_to(target)
        (rogue / "workspace" / "sub" / name).symlink_to(target)
    (rogue / "workspace" / "inside").symlink_to("sub")
    script = """
        for name in passwd canary up root/etc/passwd sub/passwd sub/up; do
            cat $name && echo "READ $name"; cp $name copy-of-it && echo "COPIED $name"
            echo pwned > $name && echo "WROTE $name"
        done
        touch ready; sleep 2; ls inside/ >/dev/null && echo links inside work
    """
    async with HostileLender(delegator, executor) as lender, lender.serving(rogue) as port:
        invite = lender.invitation(script)
        task, _ = await lender.invite(invite)
        updates = await lender.run(task, lender.start(invite.delegation_id, port))

    said = "".join(update.text for update in updates if isinstance(update, Progress))
    assert isinstance(updates[-1], Done), updates
    assert "links inside work" in said
    assert "READ" not in said
    assert "COPIED" not in said
    assert "WROTE" not in said
    assert "root:x:0:0" not in said
    assert canary.read_text() == "the executor's own file"


# C05: links that lead out of what is lent


def test_c05_links_out_of_the_export_are_refused(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    outside, project = tmp_path / "outside", tmp_path / "project"
    outside.mkdir()
    (outside / "secret").write_text("top secret")
    project.mkdir()
    (project / "mine").write_text("mine")
    (project / "link").symlink_to(outside)
    (project / "near").symlink_to("../outside")
    (project / "file").symlink_to(outside / "secret")
    before = tree(outside)
    script = f"""
        attack() {{
            cat $1/secret && echo "READ $1"; ls $1/ && echo "LISTED $1"
            echo pwned > $1/secret && echo "WROTE $1"; echo new > $1/new && echo "CREATED $1"
            mv mine $1/ && echo "MOVED $1"; mkdir $1/dir && echo "MADE $1"; rm -f $1/secret
        }}
        attack link; attack near; cat file && echo "READ file"; echo pwned > file && echo "WROTE file"
        ln -s {outside} own; attack own; ln -s ../outside own2; attack own2; ln -s .. up; attack up/outside
        touch waiting; while [ ! -e late ] && [ ! -L late ]; do sleep 0.2; done; sleep 2.5; attack late
        echo finished
    """
    id_ = begin(delegator, project, script)
    wait_for((project / "waiting").exists, 30, "the first attacks")
    through = mount_of(executor, id_) / "workspace"
    for name in ("link/secret", "near/secret", "file"):
        with pytest.raises(OSError, match=r".+"):
            (through / name).read_bytes()
    (project / "late").symlink_to(outside)

    ended = finish(delegator, id_)

    said = delegator.json("output", id_)
    text = "".join(piece["text"] for piece in said["output"] if piece["stream"] == "stdout")
    assert ended.result is not None
    assert text.strip().endswith("finished")
    assert {word for word in ("READ", "LISTED", "WROTE", "CREATED", "MOVED", "MADE") if word in text} == set()
    assert "top secret" not in str(said)
    assert tree(outside) == before
    assert (project / "mine").read_text() == "mine"
    assert {"link", "near", "file"} <= {entry.partition(" ")[0] for entry in ended.unmountable}


# C07 and C08: secrets and what git ignores


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    files = {
        ".env": "PASSWORD=hunter2",
        ".env.example": "PASSWORD=",
        "deploy/id_ed25519": "-----BEGIN OPENSSH PRIVATE KEY----- hunter2",
        "deploy/id_ed25519.pub": "ssh-ed25519 AAAA",
        "server.pem": "-----BEGIN PRIVATE KEY----- hunter2",
        ".gitignore": "node_modules\n*.env\nlocal/\n",
        "prod.env": "TOKEN=hunter2",
        "local/secrets.yaml": "token: hunter2",
        "local/.npmrc": "//registry/:_authToken=hunter2",
        "node_modules/left-pad/index.js": "module.exports = 1",
        "main.py": "print(1)",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git = ["git", "-C", str(root), "-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "main.py", ".gitignore"], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    subprocess.run([*git, "remote", "add", "origin", "https://user:hunter2@example.org/x.git"], check=True)
    return root


SNIFF = """
    find . -type f | sort; find . -type f -exec cat {} + ; ls -a . deploy local
    for name in .env .git/config .GIT/config deploy/id_ed25519 server.pem prod.env local/secrets.yaml local/.npmrc; do
        cat $name && echo "READ $name"; echo x > $name && echo "WROTE $name"; mv $name stolen && echo "MOVED $name"
        ln $name stolen2 && echo "LINKED $name"
    done
"""


def test_c07_and_c08_secrets_are_hidden_and_the_lender_is_told(daemons: Pair, repository: Path) -> None:
    before = tree(repository)

    ended = delegate(daemons[0], repository, SNIFF)

    said = daemons[0].json("output", ended["delegation_id"])
    text = "".join(piece["text"] for piece in said["output"])
    assert "hunter2" not in text
    assert {word for word in ("READ", "WROTE", "MOVED", "LINKED") if f"{word} " in text} == set()
    for visible in ("main.py", ".env.example", "id_ed25519.pub", "node_modules/left-pad/index.js"):
        assert visible in text
    assert {".env", ".git", "deploy/id_ed25519", "server.pem", "prod.env", "local/secrets.yaml", "local/.npmrc"} <= {
        name.rstrip("/") for name in ended["hidden"]
    }
    assert tree(repository) == before


def test_c07_revealing_is_explicit_and_only_what_is_named(daemons: Pair, repository: Path) -> None:
    ended = delegate(daemons[0], repository, "cat .env; cat server.pem prod.env .git/config; true", "--reveal", ".env")

    assert ended["result"]["final_summary"] == "PASSWORD=hunter2"
    assert ".env" not in ended["hidden"]
    assert "server.pem" in ended["hidden"]


def test_c07_revealing_git_never_shows_its_remotes(daemons: Pair, repository: Path) -> None:
    script = "cat .git/HEAD; cat .git/config; echo x > .git/hooks/post-checkout; true"

    ended = delegate(daemons[0], repository, script, "--reveal", ".git")

    assert ended["result"]["final_summary"] == "ref: refs/heads/master"
    assert not (repository / ".git" / "hooks" / "post-checkout").exists()


def test_c07_policy_can_deny_revealing(daemons: Pair, repository: Path) -> None:
    ended = delegate(daemons[0], repository, "cat deploy/id_ed25519", "--reveal", "id_ed25519")

    assert ended["error"]["code"] == "POLICY_DENIED"
    assert ended["delegation_id"] is None


# C10: emptiness is never taken for a result


def test_c10_a_lost_mount_is_not_an_empty_directory(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    (tmp_path / "precious").write_text("kept")
    mark = marker()
    id_ = begin(delegator, tmp_path, f"touch started; (sleep {mark}) & while :; do echo output > out; done")
    wait_for((tmp_path / "started").exists, 30, "the work")
    mount = mount_of(executor, id_)
    sshfs = [pid for pid in processes_with(str(mount)) if b"sshfs" in Path(f"/proc/{pid}/cmdline").read_bytes()[:64]]
    assert len(sshfs) == 1

    os.kill(sshfs[0], signal.SIGKILL)
    landed = []
    until = time.monotonic() + 20
    # Once nothing of the work is left, the empty directory may be opened to be removed.
    while time.monotonic() < until and processes_with(mark):
        with suppress(OSError):
            (mount / "landed").write_text("on the executor's own disk")
            landed.append("file")
        with suppress(OSError):
            (mount / "workspace").mkdir()
            landed.append("directory")

    end = finish(delegator, id_)
    assert landed == []
    assert str(end.state) == "error"
    assert end.error is not None
    assert end.error.code == "MOUNT_FAILED"
    wait_for(lambda: not processes_with(mark), 20, "the end of the worker")
    assert not mount.exists()
    assert (tmp_path / "precious").read_text() == "kept"


def test_c10_an_executor_that_comes_back_empty_destroys_nothing(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    (tmp_path / "deep").mkdir()
    for number in range(20):
        (tmp_path / "deep" / f"file-{number}").write_text(str(number))
    before = tree(tmp_path)
    mark = marker()
    id_ = begin(delegator, tmp_path, f"touch started; sleep {mark}")
    wait_for((tmp_path / "started").exists, 30, "the work")

    executor.kill()
    wait_for(lambda: not processes_with(mark), 20, "the end of the worker")
    restart(executor)

    assert executor.mounts == []
    assert list((executor.home / "state" / "mounts").iterdir()) == []
    end = finish(delegator, id_)
    assert str(end.state) == "error"
    assert end.audit is not None
    assert end.audit.deleted == []
    assert {**before, "started": b""} == tree(tmp_path)
    assert delegate(delegator, tmp_path, "ls deep | wc -l")["result"]["final_summary"].strip() == "20"
