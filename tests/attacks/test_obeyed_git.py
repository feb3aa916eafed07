"""A hostile executor on what the lender's git obeys beside configuration and hooks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from attacks.kit.view_lease import served as lend
from attacks.test_repository_rw import git, give, parts_of, repository, served
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.git.obeyed import HOOKS
from sublet.workspace.view.led_to import guarded
from support.views import default_rules

__all__ = ["repository", "served"]

NOTED = ["ORIG_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"]


@pytest.mark.parametrize("name", NOTED)
@pytest.mark.parametrize(
    "target", ["shallow", "info/grafts", "commondir", "refs/heads/other", "refs/replace/" + "1" * 40]
)
def test_what_git_notes_while_it_works_points_to_nothing(
    served: WritableFs, repository: Path, name: str, target: str
) -> None:
    git(repository, "branch", "other")
    with pytest.raises(PermissionError):
        give(served, name, f"ref: {target}\n".encode())
    (repository / "b").write_text("b")
    git(repository, "add", "b")
    git(repository, "commit", "-qm", "second")
    before = git(repository, "rev-parse", "other")
    git(repository, "reset", "-q", "--hard", "HEAD")
    assert git(repository, "rev-parse", "other") == before
    assert git(repository, "log", "--format=%s").split() == ["second", "first"]
    assert target == "refs/heads/other" or not (repository / ".git" / target).exists()


@pytest.mark.parametrize("name", NOTED)
def test_what_git_notes_while_it_works_is_not_written_in_place(served: WritableFs, repository: Path, name: str) -> None:
    head = git(repository, "rev-parse", "HEAD")
    give(served, name, f"{head}\n".encode())
    assert (repository / ".git" / name).read_text() == f"{head}\n"
    with pytest.raises(PermissionError):
        served.open_write(parts_of(name), 1, 0o644)
    served.remove(parts_of(name))


@pytest.mark.parametrize(
    ("configuration", "run"),
    [
        ("[include]\n\tpath = ../shared.cfg\n", "shared.cfg"),
        ('[includeIf "onbranch:x"]\n\tpath = ../shared.cfg\n', "shared.cfg"),
        ("[include]\n\tpath = ../absent.cfg\n", "absent.cfg"),
        ("[include]\n\tpath = ../shared.cfg\n", "tools/included"),
        ("[core]\n\tfsmonitor = tools/watch\n", "tools/watch"),
        ('[core]\n\tfsmonitor = "./tools/absent"\n', "tools/absent"),
        ("[core]\n\thooksPath = link\n", "tools/pre-commit"),
        ("[filter \"x\"]\n\tclean = python3 'clean.py' %f\n", "clean.py"),
        ('[diff "x"]\n\ttextconv = "sh -c \\"tools/watch $0\\""\n', "tools/watch"),
        ("[credential]\n\thelper = !tools/watch\n", "tools/watch"),
        ('[gpg "ssh"]\n\tallowedSignersFile = signers\n', "signers"),
    ],
)
@pytest.mark.parametrize("where", ["at the top", "above", "below"])
def test_what_the_configuration_of_a_repository_names_is_not_changed(
    tmp_path: Path, configuration: str, run: str, where: str
) -> None:
    top = tmp_path / "lent" / "sub" if where == "below" else tmp_path / "lent"
    (top / "tools").mkdir(parents=True)
    for name in ("shared.cfg", "tools/watch", "tools/pre-commit", "clean.py", "free"):
        (top / name).write_text("mine")
    (top / "shared.cfg").write_text("[core]\n\tfsmonitor = tools/included\n")
    (top / "link").symlink_to("tools")
    lent = top
    if where == "above":
        lent = tmp_path / "lent" / "tools"
        if not run.startswith("tools/") or "link" in configuration:
            pytest.skip("that lies beside what is lent, or is all of it")
        run = run.removeprefix("tools/")
    elif where == "below":
        lent, run = tmp_path / "lent", "sub/" + run
    git(top, "init", "-q")
    with (top / ".git" / "config").open("a") as config:
        config.write(configuration)
    rules = guarded(lent, lambda locked, hidden: default_rules(hidden=hidden, locked=locked))
    with lend(lent, rules) as lease:
        assert lease.put(run.encode(), b"EVIL") == 3
        assert lease.put(b"free", b"changed") == 0


@pytest.mark.parametrize("value", [".", "{top}", "./x/..", "here", "{top}/here/", "../lent", "..", "../../lent"])
def test_where_hooks_lie_at_the_top_of_what_is_lent_each_name_of_one_is_locked(tmp_path: Path, value: str) -> None:
    top = tmp_path / "lent"
    (top / "x").mkdir(parents=True)
    git(top, "init", "-q")
    (top / "here").symlink_to(".")
    git(top, "config", "core.hooksPath", value.format(top=top))
    (top / "post-merge").write_text("mine")
    with lend(top, guarded(top, lambda locked, hidden: default_rules(hidden=hidden, locked=locked))) as lease:
        for name in (b"pre-commit", b"post-merge", b"post-index-change", b"Commit-Msg", b"update"):
            assert lease.put(name, b"EVIL") == 3
            assert lease.mkdir(name) == 3
        assert lease.put(b"own", b"EVIL") == 0
        assert lease.rename(b"own", b"pre-push") == 3
        assert lease.link(b"own", b"pre-push") == 3
        assert lease.put(b"x/pre-commit", b"fine") == 0
        assert lease.put(b"main.py", b"fine") == 0
    assert (top / "post-merge").read_text() == "mine"


def test_the_hooks_that_are_locked_are_all_that_this_git_knows() -> None:
    exec_path = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
    held = (Path(exec_path) / "git").read_bytes()
    known = set(re.findall(rb"(?<=\0)(?:pre|post)-[a-z-]+(?=\0)", held))
    assert len(known) > 5
    assert known <= set(HOOKS)


def test_hooks_at_the_top_by_a_repository_above_lock_them_too(tmp_path: Path) -> None:
    top = tmp_path / "lent"
    lent = top / "tools"
    lent.mkdir(parents=True)
    git(top, "init", "-q")
    git(top, "config", "core.hooksPath", "tools")
    with lend(lent, guarded(lent, lambda locked, hidden: default_rules(hidden=hidden, locked=locked))) as lease:
        assert lease.put(b"pre-commit", b"EVIL") == 3
        assert lease.put(b"main.py", b"fine") == 0
