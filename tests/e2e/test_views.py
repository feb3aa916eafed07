"""What goes along with a delegation: several directories, chosen names, and the repository, through real mounts."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import Daemon, two_daemons, wait_for
from support.leases import begin, delegate, finish, tree, view

Pair = tuple[Daemon, Daemon]
TOKEN = "hunter2"
NO_UNLOCKING = {
    "version": 1,
    "global": [{"id": "no-hooks", "effect": "deny", "action": "workspace.unlock", "resource": ".husky*"}],
}


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with two_daemons(tmp_path_factory.mktemp("pair"), policy=NO_UNLOCKING) as both:
        yield both


def git(root: Path, *arguments: str) -> str:
    """Run the lender's own git, as somebody whose name is known, and return what it prints."""
    who = ["-c", "user.name=lender", "-c", "user.email=lender@example.org"]
    done = subprocess.run(
        ["git", "-C", str(root), *who, *arguments], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "main.py").write_text("print(1)\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    git(root, "remote", "add", "origin", f"https://user:{TOKEN}@example.org/x.git")
    git(root, "config", "http.https://example.org/.extraheader", f"Authorization: {TOKEN}")
    git(root, "config", "alias.status", f"!echo {TOKEN}")
    return root


# Several directories


def test_several_directories_lie_beside_each_other_each_with_its_own_access(daemons: Pair, tmp_path: Path) -> None:
    for name in ("app", "docs", "specs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "hello").write_text(f"{name}\n")
    script = """
        cat hello ../docs/hello ../specs/hello
        echo "$SUBLET_RESOURCES" > resources.json
        cp ../meta/task.json task.json
        echo new > ../docs/new
        mv ../docs/hello moved
        ln moved ../docs/linked && echo LINKED ACROSS
        echo x > ../specs/new && echo WROTE READ-ONLY
        mv ../specs/hello stolen; test -e ../specs/hello || echo MOVED FROM READ-ONLY
        rm -f stolen; ls -d ..; ls ..
    """

    ended = delegate(
        daemons[0],
        tmp_path / "app",
        script,
        *("--resource", f"docs={tmp_path / 'docs'}:rw", "--resource", f"specs={tmp_path / 'specs'}"),
    )

    assert ended["state"] == "completed", ended
    lines = ended["result"]["final_summary"].splitlines()
    assert lines[:3] == ["app", "docs", "specs"]
    assert lines[-4:] == ["docs", "meta", "specs", "workspace"]
    assert not [line for line in lines if line.isupper()]
    assert (tmp_path / "app" / "moved").read_text() == "docs\n"
    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == ["new"]
    assert tree(tmp_path / "specs") == {"hello": b"specs\n"}
    listed = json.loads((tmp_path / "app" / "resources.json").read_text())
    modes = [("workspace", "rw"), ("docs", "rw"), ("specs", "ro")]
    assert [(one["name"], one["access_mode"]) for one in listed] == modes
    task = json.loads((tmp_path / "app" / "task.json").read_text())
    assert [(one["name"], one["access_mode"]) for one in task["resources"]] == modes
    assert [(one["name"], one["path"]) for one in ended["resources"]] == [
        ("workspace", str(tmp_path / "app")),
        ("docs", str(tmp_path / "docs")),
        ("specs", str(tmp_path / "specs")),
    ]
    assert ended["audit"]["added"] == [
        *("workspace/moved", "workspace/resources.json", "workspace/task.json", "docs/new"),
    ]
    assert ended["audit"]["deleted"] == ["docs/hello"]
    assert ended["audit"]["by_others"] == []
    patch = daemons[0].run("diff", ended["delegation_id"]).stdout
    assert "--- a/docs/hello" in patch
    assert "+++ b/workspace/moved" in patch
    assert "docs (rw)" in daemons[0].run("output", ended["delegation_id"]).stdout


# Chosen names


def test_what_is_left_out_is_nowhere_and_cannot_be_made(daemons: Pair, tmp_path: Path) -> None:
    root = tmp_path / "project"
    for name in ("src/a.py", "src/notes.txt", "src/gen/b.py", "data/big.bin", "setup.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{name}\n")
    before = tree(root)
    script = """
        find . -type f | sort
        cat src/notes.txt && echo READ; echo x > src/new.txt && echo MADE; ln -s a.py src/link.txt && echo MADE
        mv src/a.py src/a.txt && echo MOVED; ln src/a.py src/b.txt && echo MADE; echo x > src/gen/c.py && echo MADE
        mkdir other && echo 1 > other/fine.py
    """

    ended = delegate(daemons[0], root, script, "--include", "*.py", "--exclude", "gen", "--exclude", "setup.*")

    assert ended["result"]["final_summary"].splitlines() == ["./src/a.py"]
    assert tree(root) == {**before, "other/fine.py": b"1\n"}
    assert ended["audit"]["added"] == ["other/fine.py"]
    assert ended["left_out"] == 4
    assert ended["hidden"] == []
    assert "4 names, as you asked" in daemons[0].run("output", ended["delegation_id"]).stdout


def test_unlocking_is_explicit_traced_and_guarded(daemons: Pair, tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / ".vscode").mkdir(parents=True)
    (root / ".vscode" / "tasks.json").write_text("{}\n")
    script = "echo '[]' > .vscode/tasks.json; echo evil > .envrc; true"

    plain = delegate(daemons[0], root, script)
    assert plain["audit"]["changed"] == plain["audit"]["added"] == []
    ended = delegate(daemons[0], root, script, "--unlock", ".vscode")
    assert ended["audit"]["changed"] == [".vscode/tasks.json"]
    assert ended["audit"]["added"] == []
    assert (ended["unlocked"], ended["revealed"], ended["git"]) == ([".vscode"], [], "hidden")
    assert "unlocked on request" in daemons[0].run("output", ended["delegation_id"]).stdout
    denied = delegate(daemons[0], root, script, "--unlock", ".husky")
    assert denied["error"]["code"] == "POLICY_DENIED"


# The repository


def test_a_repository_can_be_read_without_its_secrets(daemons: Pair, repository: Path) -> None:
    (repository / "main.py").write_text("print(2)\n")
    before = tree(repository)
    script = """
        git status --porcelain; git log --format=%s; git diff --stat | tail -n 1; cat .git/config; ls -a .git
        git commit -qam no && echo COMMITTED; echo x > .git/hooks/pre-commit && echo WROTE
        git config core.fsmonitor evil && echo CONFIGURED; git checkout -q -b other && echo BRANCHED; true
    """

    ended = delegate(daemons[0], repository, script, "--git", "ro")

    text = ended["result"]["final_summary"]
    assert text.splitlines()[:2] == ["M main.py", "first"]
    assert "1 file changed" in text
    assert "https://example.org/x.git" in text
    assert TOKEN not in text
    assert not {"COMMITTED", "WROTE", "CONFIGURED", "BRANCHED"} & set(text.splitlines())
    assert tree(repository) == before
    assert (ended["git"], ended["audit"]["refs"]) == ("ro", [])


def test_c17_commits_and_files_made_through_the_mount_are_the_owners(daemons: Pair, repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD").strip()
    script = """
        umask 022
        echo 'print(3)' > main.py; mkdir -p pkg; echo > pkg/__init__.py; printf '#!/bin/sh\\n' > run; chmod +x run
        git add . && git commit -qm second && git tag v1 && git checkout -q -b topic && git log --format=%s
        echo x > .git/hooks/post-checkout && echo WROTE; echo x > .git/commondir && echo WROTE
        ln -s ../main.py .git/logs/link && echo LINKED; rm -f .git/objects/*/* ; git fsck --full 2>&1 | grep -c missing
        git status --porcelain; git update-index --skip-worktree main.py; git update-index --assume-unchanged run
    """

    ended = delegate(daemons[0], repository, script, "--git", "rw")

    assert ended["state"] == "completed", ended
    assert ended["result"]["final_summary"].split() == ["second", "first", "0"]
    assert git(repository, "log", "--format=%s %an", "topic").splitlines() == ["second agent", "first lender"]
    assert git(repository, "status", "--porcelain", "--branch") == "## topic\n"
    git(repository, "fsck", "--full")
    second = git(repository, "rev-parse", "topic").strip()
    assert {(ref["name"], ref["old"], ref["new"]) for ref in ended["audit"]["refs"]} == {
        ("HEAD", "ref: refs/heads/main", "ref: refs/heads/topic"),
        ("refs/heads/main", first, second),
        ("refs/heads/topic", None, second),
        ("refs/tags/v1", None, second),
    }
    assert not [path for path in ended["audit"]["added"] if ".git" in path]
    owner = repository.stat()
    for path in (repository, *repository.rglob("*")):
        status = path.lstat()
        assert (status.st_uid, status.st_gid) == (owner.st_uid, owner.st_gid), path
        assert stat.S_IMODE(status.st_mode) & 0o022 == 0, path
    assert os.access(repository / "run", os.X_OK)
    assert not (repository / ".git" / "hooks" / "post-checkout").exists()
    said = daemons[0].run("output", ended["delegation_id"]).stdout
    assert "refs/tags/v1" in said
    assert "main.py, run  (the agent's index had git not see changes" in said
    assert ended["audit"]["index_marks"] == ["main.py", "run"]
    assert {line[0] for line in git(repository, "ls-files", "-v").splitlines()} == {"H"}


@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_d10_a_worktree_is_told_once_with_what_works_instead(daemons: Pair, repository: Path, mode: str) -> None:
    tree_of_it = repository.with_name(f"worktree-{mode}")
    git(repository, "worktree", "add", "-q", str(tree_of_it))

    ended = delegate(daemons[0], tree_of_it, "ls -a; cat .git; true", "--git", mode)

    assert ".git" not in ended["result"]["final_summary"]
    assert str(repository) not in ended["result"]["final_summary"]
    assert (ended["git"], ended["hidden"], ended["left_out"]) == ("hidden", [], 0)
    [why] = ended["git_hidden"]
    assert "a linked worktree" in why
    assert "--transport git" in why
    said = daemons[0].run("output", ended["delegation_id"]).stdout
    assert said.count(".git stays hidden") == 1
    assert ".git shown" not in said
    assert "as you asked" not in said


def test_d10_by_transport_git_the_agent_of_a_worktree_has_a_repository(daemons: Pair, repository: Path) -> None:
    tree_of_it = repository.with_name("worktree-git")
    git(repository, "worktree", "add", "-q", str(tree_of_it))
    script = "git log --format=%s; echo more >> main.py; git commit -qam work"
    ended = delegate(daemons[0], tree_of_it, script, "--transport", "git", "--result-branch", "side")
    assert ended["state"] == "completed", ended
    assert ended["result"]["final_summary"].split() == ["snapshot"]
    assert git(repository, "show", "side:main.py").endswith("more\n")


def test_ordinary_git_goes_on_through_the_mount(daemons: Pair, repository: Path) -> None:
    script = """
        git branch a/b && git branch -m a/b a/c && git pack-refs --all && git branch d && git branch -D d
        echo x >> main.py && git stash -q && git stash pop -q && git commit -qam second && git notes add -m note
        git switch -qc e && git reset -q --soft HEAD~1 && git commit -qm third && git update-ref refs/keep/x HEAD
        git symbolic-ref refs/heads/link refs/heads/e && git replace HEAD HEAD~1 2>/dev/null && echo REPLACED
        git for-each-ref --format='%(refname)'
    """
    ended = delegate(daemons[0], repository, script, "--git", "rw")
    assert ended["state"] == "completed", ended
    expected = ["a/c", "e", "link", "main"]
    names = [f"refs/heads/{name}" for name in expected] + ["refs/keep/x", "refs/notes/commits"]
    assert ended["result"]["final_summary"].split() == names
    assert git(repository, "for-each-ref", "--format=%(refname)").split() == names
    git(repository, "fsck", "--full")


def test_locks_that_the_agents_git_left_are_gone_and_what_can_not_go_is_told(daemons: Pair, repository: Path) -> None:
    script = """
        touch .git/index.lock .git/HEAD.lock .git/refs/heads/main.lock .git/packed-refs.lock .git/packed-refs.new
        mkdir .git/objects/tmp_objdir-incoming-x; echo > begun; while [ ! -e go ]; do ls >/dev/null; done
    """
    found = begin(daemons[0], repository, script, "--git", "rw")
    wait_for((repository / "begun").exists, 30, "the locks")
    (repository / ".git/objects/tmp_objdir-incoming-x/of the lender").touch()
    (repository / "go").touch()
    ended = finish(daemons[0], found)
    assert ended.error is None
    settled = wait_for(lambda: now if (now := view(daemons[0], found)).settled else None, 30, "the report")
    assert list((repository / ".git").rglob("*.lock")) == []
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "the lender's own")
    git(repository, "pack-refs", "--all")
    [line] = settled.left_behind
    assert line.startswith(".git/objects/tmp_objdir-incoming-x: the agent's git left it")
    assert "left behind" in daemons[0].run("output", found).stdout
    assert daemons[0].json("output", found)["left_behind"] == [line]
