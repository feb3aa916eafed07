"""Threats from what runs on the executor: hostile prompts, traps for the lender, tricks (DESIGN 9.4, 9.5, 9.6)."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.daemons import Daemon, two_daemons, wait_for
from support.leases import begin, delegate, marker, mount_of, processes_with, tree

SECRET = "hunter2-of-the-host"

Pair = tuple[Daemon, Daemon]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the person whose daemons these are, with a key and a git filter of theirs in it."""
    directory = tmp_path_factory.mktemp("home")
    (directory / ".ssh").mkdir()
    (directory / ".ssh" / "id_ed25519").write_text(SECRET)
    (directory / ".gitconfig").write_text(
        f'[filter "evil"]\n\tclean = "touch {directory}/pwned; cat"\n\tsmudge = cat\n'
        f'[core]\n\thooksPath = {directory}/hooks\n\tfsmonitor = "touch {directory}/pwned"\n'
        f'[diff "evil"]\n\ttextconv = "touch {directory}/pwned; cat"\n'
    )
    return directory


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Iterator[Pair]:
    environ = {"HOME": str(home), "API_TOKEN": SECRET}
    with two_daemons(tmp_path_factory.mktemp("pair"), environ=environ) as both:
        yield both


def said(daemon: Daemon, id_: str) -> str:
    """Return everything that the agent of a delegation printed."""
    return "".join(piece["text"] for piece in daemon.json("output", id_)["output"])


# Row 4: a hostile prompt on the executor


def test_a_hostile_prompt_finds_nothing_to_steal(daemons: Pair, home: Path, tmp_path: Path) -> None:
    delegator, executor = daemons
    other, mine, canary = tmp_path / "other", tmp_path / "mine", tmp_path / "canary"
    for directory in (other, mine):
        directory.mkdir()
    (other / "private").write_text(SECRET)
    canary.write_text(SECRET)
    mark = marker()
    neighbour = begin(delegator, other, f"touch started; sleep {mark}")
    wait_for((other / "started").exists, 40, "the other lease")
    ports = [urlsplit(str(executor.info["a2a_url"])).port, int(str(delegator.info["sftp"]).rpartition(":")[2])]
    paths = [
        executor.home / "state" / "keys", executor.home / "state" / "sublet.db", executor.home / "run",
        executor.home / "run" / "control.sock", executor.home / "run" / "mcp.sock", executor.home / "config",
        delegator.home, home, home / ".ssh" / "id_ed25519", canary, other, mine, mount_of(executor, neighbour),
        mount_of(executor, neighbour) / "workspace" / "private", Path("/root"), Path("/etc/shadow"),
        Path("/etc/ssh"), Path("/var/lib"), Path("/run/user"), Path("/sys"), Path("/boot"),
        Path(f"/proc/{executor.pid}/fd"),
    ]  # fmt: skip
    script = f"""
        exec 2>&1
        for path in {" ".join(map(str, paths))}; do [ -e $path ] && ls -A $path | grep -q . && echo "GOT $path"; done
        cat /proc/[0-9]*/environ | tr '\\0' '\\n' > $TMPDIR/environ
        grep -i -e hunter2 -e token -e SUBLET_HOME $TMPDIR/environ && echo GOT environ
        env
        for pid in $(ls /proc | grep '^[0-9]'); do tr '\\0' ' ' < /proc/$pid/cmdline; echo; done > $TMPDIR/processes
        grep -e sshfs -e 'sublet up' -e {mark} $TMPDIR/processes && echo GOT processes
        kill -9 {executor.pid} && echo GOT kill
        kill -9 -1
        for port in {" ".join(map(str, ports))}; do
            bash -c "exec 3<>/dev/tcp/127.0.0.1/$port" && echo GOT port $port
        done
        grep -v -e 'lo:' -e '|' /proc/net/dev && echo GOT network
        for place in /usr/bin/x /etc/x /x /dev/x "$SUBLET_WORKSPACE/../x" "$SUBLET_META/x" /proc/sys/kernel/hostname; do
            echo x > "$place" && echo "GOT write $place"
        done
        cat /proc/sys/kernel/core_pattern > $TMPDIR/pattern
        cat $TMPDIR/pattern > /proc/sys/kernel/core_pattern && echo GOT core_pattern
        mount -t tmpfs none /mnt && echo GOT mount
        mknod $TMPDIR/sda b 8 0 && echo GOT device
        grep CapEff /proc/self/status | grep -v 0000000000000000 && echo GOT capabilities
        ls -A "$HOME" | grep -q ssh && echo GOT home
        cat $SUBLET_META/task.json | grep -q delegation_id && echo has its task
        echo finished
    """

    ended = delegate(delegator, mine, script)

    text = said(delegator, ended["delegation_id"])
    assert ended["state"] == "completed", ended
    assert "has its task" in text
    assert text.strip().endswith("finished")
    assert [line for line in text.splitlines() if line.startswith("GOT")] == []
    assert SECRET not in text
    assert executor.alive()
    assert processes_with(mark)
    delegator.json("cancel", neighbour)


# Row 5: what would run later at the lender

TRAPS = (
    ".git/hooks/pre-commit", ".git/config", ".GIT/hooks/pre-commit", ".envrc", ".claude/settings.json", ".mcp.json",
    ".vscode/tasks.json", ".VSCode/tasks.json", ".idea/workspace.xml", ".bashrc", ".profile", ".zshrc", ".gitconfig",
    ".husky/pre-commit", "HEAD", ".pre-commit-config.yaml", ".cursor/mcp.json", ".devcontainer/devcontainer.json",
    "sub/.envrc", "sub/.vscode/tasks.json", "sub/.git/hooks/post-checkout", "x.code-workspace", ".vimrc", ".gdbinit",
)  # fmt: skip


@pytest.mark.parametrize("there", [False, True], ids=["absent", "present"])
def test_traps_for_the_lender_are_refused_on_every_way(daemons: Pair, tmp_path: Path, there: bool) -> None:
    (tmp_path / "sub").mkdir()
    if there:
        for name in TRAPS:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("the lender's own")
    before = tree(tmp_path)
    directories = {path for path in tmp_path.rglob("*") if path.is_dir()}
    script = f"""
        exec 2>/dev/null
        mkdir full; echo pwned > full/tasks.json; echo pwned > file; echo pwned > full/pre-commit; mkdir full/hooks
        for name in {" ".join(TRAPS)}; do
            top=${{name%%/*}}; [ $top = sub ] && top=sub/$(echo $name | cut -d/ -f2)
            (echo pwned > $name) && echo "WROTE $name"
            (echo pwned >> $name) && echo "APPENDED $name"
            mkdir $top && echo "MADE $top"; mkdir -p $name && echo "MADE $name"
            mv file $name && echo "MOVED $name"; mv -T full $top && echo "MOVED $top"
            ln file $name && echo "LINKED $name"; ln -s file $name && echo "POINTED $name"
            ln -sT full $top && echo "POINTED $top"
            cp file $name && echo "COPIED $name"; cp -rT full $top && echo "COPIED $top"
            chmod 777 $name && echo "MODE $name"; touch $name && echo "TOUCHED $name"
            rm -r $name && echo "REMOVED $name"
            mv $name taken && echo "TOOK $name"; mv -T $top taken && echo "TOOK $top"
            ln $name taken && echo "TOOK $name"
        done
        git init -q . && echo "GIT INIT"; git init -q --bare bare && echo "GIT BARE"
        rm -rf full file bare taken
        echo finished
    """

    ended = delegate(daemons[0], tmp_path, script)

    assert ended["state"] == "completed", ended
    assert ended["result"]["final_summary"].splitlines() == ["finished"]
    assert tree(tmp_path) == before
    assert {path for path in tmp_path.rglob("*") if path.is_dir()} - directories <= {tmp_path / "bare" / "refs"}


# Row 6: modes, nodes, races and filters


def test_setuid_is_stripped_and_nodes_are_refused(daemons: Pair, tmp_path: Path) -> None:
    script = """
        exec 2>/dev/null
        cp /bin/true tool; chmod 4755 tool; chmod 2755 tool; chmod u+s,g+s,+t tool
        install -m 6755 /bin/true installed; mkdir -m 2777 dir; chmod 7777 dir
        mkfifo fifo && echo GOT fifo; mknod null c 1 3 && echo GOT device; mknod disk b 8 0 && echo GOT disk
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")' && echo GOT socket
        echo finished
    """

    ended = delegate(daemons[0], tmp_path, script)

    assert ended["result"]["final_summary"] == "finished"
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["dir", "installed", "tool"]
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o7000 == 0, path
    assert (tmp_path / "tool").stat().st_mode & 0o100


def test_nodes_of_the_lender_are_used_by_nobody(daemons: Pair, tmp_path: Path) -> None:
    """A FIFO opened in the mount is one of the executor's own kernel, and blocks there as it would anywhere."""
    os.mkfifo(tmp_path / "fifo")
    if os.geteuid() == 0:
        os.mknod(tmp_path / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    script = """
        timeout 2 sh -c 'echo pwned > fifo'; timeout 2 cat fifo
        head -c 1 zero && echo READ; echo x > zero && echo WROTE
        echo finished
    """

    ended = delegate(daemons[0], tmp_path, script)

    try:
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)
    assert ended["result"]["final_summary"] == "finished"


def test_swapping_links_under_the_worker_never_leads_out(daemons: Pair, tmp_path: Path) -> None:
    delegator, _ = daemons
    outside, project = tmp_path / "outside", tmp_path / "project"
    for directory, text in ((outside, SECRET), (project / "inside", "inside")):
        directory.mkdir(parents=True)
        (directory / "file").write_text(text)
    (project / "link").symlink_to(outside)
    script = """
        exec 2>/dev/null; touch started
        for i in $(seq 150); do cat inside/file; echo "pwned" > inside/new-$i; ls inside; done; echo finished
    """

    with swapping(project / "inside", project / "link", project / "aside"):
        ended = delegate(delegator, project, script)

    text = said(delegator, ended["delegation_id"])
    assert ended["state"] == "completed", ended
    assert text.strip().endswith("finished")
    assert SECRET not in text
    assert tree(outside) == {"file": SECRET.encode()}


@contextmanager
def swapping(directory: Path, link: Path, aside: Path) -> Iterator[None]:
    """Exchange a directory and a link all the time while the block runs."""
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for first, second in ((directory, link), (link, directory)):
                first.rename(aside)
                second.rename(first)
                aside.rename(second)
                stop.wait(0.002)
                break

    thread = threading.Thread(target=swap, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


def test_no_attribute_ignore_rule_or_nested_repository_hides_a_change(
    daemons: Pair, home: Path, tmp_path: Path
) -> None:
    delegator, _ = daemons
    (tmp_path / "kept").write_text("one\n")
    (tmp_path / "sub").mkdir()
    script = """
        printf '* filter=evil diff=evil\\n*.txt -diff -text export-ignore\\n' > .gitattributes
        printf '*\\n!.gitignore\\n' > .gitignore; cp .gitignore sub/.gitignore; cp .gitattributes sub/.gitattributes
        echo pwned > hidden.txt; echo pwned > sub/hidden.txt; echo two >> kept; printf 'a\\nb' > "two
lines"
        mkdir sub/objects sub/refs; echo 'gitdir: /tmp' > sub/gitfile; chmod +x kept
        touch -d '2001-01-01' kept
    """

    ended = delegate(delegator, tmp_path, script)

    audit = ended["audit"]
    assert ended["state"] == "completed", ended
    assert {
        ".gitattributes", ".gitignore", "sub/.gitignore", "sub/.gitattributes", "hidden.txt", "sub/hidden.txt",
        "sub/gitfile", "two\\x0alines",
    } == set(audit["added"])  # fmt: skip
    assert audit["changed"] == ["kept"]
    patch = delegator.json("audit", ended["delegation_id"], "--patch")["patch"]
    assert patch.count("+pwned") == 2
    assert "+two" in patch
    assert not (home / "pwned").exists()
