"""Which directories may be lent, by whom, however they are spelt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sublet.policy.decision import Action, Decision, Resource, Subject
from sublet.policy.engine import Policy
from sublet.policy.lending import ALLOWED, Protected, decide_lending

HUMAN = Subject("human")


@pytest.fixture
def protected(tmp_path: Path) -> Protected:
    home = tmp_path / "users" / "ann"
    for name in (".ssh", ".config/gh", "project/src", "sublet/state", ".aws"):
        (home / name).mkdir(parents=True)
    return Protected(home, (home / "sublet", tmp_path / "run" / "sublet"))


def lend(path: Path | str, protected: Protected, subject: Subject = HUMAN) -> Decision:
    return decide_lending(subject, str(path), protected)


def test_a_person_may_lend_a_project(protected: Protected, tmp_path: Path) -> None:
    assert lend(protected.home / "project", protected).allowed
    assert lend(protected.home / "project" / "src", protected).allowed
    assert lend(tmp_path / "elsewhere", protected).allowed


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("{home}", "lending.home"),
        ("{home}/../ann", "lending.home"),
        ("{home}/..", "lending.home"),
        ("/", "lending"),
        ("/home", "lending.home"),
        ("/home/someone", "lending.home"),
        ("/root", "lending.home"),
        ("{home}/.ssh", "lending.keys"),
        ("{home}/.ssh/sub", "lending.keys"),
        ("{home}/.config/gh", "lending.keys"),
        ("{home}/.aws", "lending.keys"),
        ("{home}/.local", "lending.keys"),
        ("{home}/project/../.gnupg", "lending.keys"),
        ("{home}/sublet", "lending.own-directories"),
        ("{home}/sublet/state", "lending.own-directories"),
        ("{base}/run", "lending.own-directories"),
        ("/etc", "lending.system"),
        ("/etc/ssl", "lending.system"),
        ("/usr/share/doc", "lending.system"),
        ("/proc/self", "lending.system"),
        ("/var", "lending.system"),
        ("/tmp", "lending"),
        ("/srv", "lending.shared"),
        ("relative", "lending.absolute-path"),
        ("", "lending.absolute-path"),
        ("/nul\0", "lending.absolute-path"),
    ],
)
def test_nobody_may_lend_these(protected: Protected, tmp_path: Path, path: str, rule: str) -> None:
    full = path.format(home=protected.home, base=tmp_path)
    everywhere = Subject("mcp", "claude", ("/",))
    for subject in (HUMAN, everywhere):
        decision = lend(full, protected, subject)
        assert not decision.allowed
        assert decision.rule.startswith(rule)
        assert decision.reason


def test_a_link_to_a_forbidden_directory_is_that_directory(protected: Protected, tmp_path: Path) -> None:
    for target in (protected.home, protected.home / ".ssh", Path("/etc")):
        link = tmp_path / "link"
        link.symlink_to(target)
        assert not lend(link, protected).allowed
        assert not lend(link / "sub" / "..", protected).allowed
        link.unlink()


def test_a_key_directory_that_is_a_link_protects_its_target(protected: Protected, tmp_path: Path) -> None:
    (protected.home / ".ssh").rmdir()
    (tmp_path / "vault").mkdir()
    (protected.home / ".ssh").symlink_to(tmp_path / "vault")
    assert lend(tmp_path / "vault", protected).rule == "lending.keys"


def test_an_mcp_caller_lends_only_below_its_roots(protected: Protected, tmp_path: Path) -> None:
    root = tmp_path / "work"
    (root / "a").mkdir(parents=True)
    (tmp_path / "workshop").mkdir()
    (root / "out").symlink_to(tmp_path / "workshop")
    agent = Subject("mcp", "claude", (str(root), "relative"))
    assert lend(root, protected, agent).allowed
    assert lend(root / "a", protected, agent).allowed
    for path in (
        tmp_path / "workshop",
        root / "out",
        root / "a" / ".." / ".." / "workshop",
        protected.home / "project",
    ):
        assert lend(path, protected, agent).rule == "lending.roots"
    assert lend(root, protected, Subject("mcp", "claude")).rule == "lending.roots"


def test_a_root_that_is_a_link_counts_as_its_target(protected: Protected, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    agent = Subject("mcp", "claude", (str(tmp_path / "root"),))
    assert lend(os.path.realpath(tmp_path / "real"), protected, agent).allowed


def test_nobody_else_lends(protected: Protected, tmp_path: Path) -> None:
    for subject in (Subject("peer", "bob", (str(tmp_path),)), Subject("a2a", "token", (str(tmp_path),))):
        assert lend(tmp_path / "x", protected, subject).rule == "lending.who"


def test_decide_asks_it(protected: Protected) -> None:
    policy = Policy(protected)
    decision = policy.decide(HUMAN, Action.WORKSPACE_LEND, Resource("x", {"path": str(protected.home)}))
    assert (decision.allowed, decision.layer, decision.rule) == (False, "lending", "lending.home")
    assert policy.decide(HUMAN, Action.WORKSPACE_LEND, Resource(str(protected.home / "project"))).allowed
    assert not policy.decide(HUMAN, Action.WORKSPACE_LEND, Resource(str(protected.home))).allowed


def test_an_agent_that_runs_here_lends_below_its_roots(protected: Protected, tmp_path: Path) -> None:
    for kind in ("mcp", "agent"):
        subject = Subject(kind, "x", (str(tmp_path / "work"),))
        assert lend(tmp_path / "work" / "a", protected, subject) == ALLOWED


def test_what_lies_in_a_home_within_a_system_tree_is_the_users() -> None:
    protected = Protected(Path("/var/lib/nobody-here"))
    assert lend("/var/lib/nobody-here/project", protected).allowed
    assert lend("/var/lib/nobody-else/project", protected).rule == "lending.system"


def test_a_refusal_says_what_to_do(protected: Protected) -> None:
    who = "only this machine's own people and agents lend directories"
    assert lend("/x", protected, Subject("peer", "bob")) == Decision(False, "lending", "lending.who", who, "")
    assert lend("x", protected) == Decision(
        False, "lending", "lending.absolute-path", "'x' is not an absolute path", "Give the full path of a directory."
    )
