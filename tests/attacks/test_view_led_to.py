"""A hostile executor on hidden and locked names that share a file with another name, or lead to one."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from attacks.kit.view_lease import served
from attacks.test_view_names import CHANGES, READ, WRITE
from sublet.protocol.errors import SubletError
from sublet.workspace.export import ViewRules
from sublet.workspace.view.led_to import MAX_PLACES, MAX_ROUNDS, guarded
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.sftp_client import attributes, string
from support.views import default_rules

OK, ABSENT, DENIED = 0, 2, 3


@pytest.mark.parametrize("name", CHANGES)
def test_a_locked_file_is_not_changed_by_another_name_of_it(tmp_path: Path, name: str) -> None:
    root = tmp_path / "lent"
    root.mkdir()
    (root / ".envrc").write_text("the lender's")
    os.link(root / ".envrc", root / "lib")
    before = (root / ".envrc").stat()
    with served(root, default_rules()) as lease:
        CHANGES[name](lease)
        assert lease.content(b".envrc") == b"the lender's"
    after = (root / ".envrc").stat()
    assert (root / ".envrc").read_text() == "the lender's"
    assert (after.st_mode, after.st_mtime_ns, after.st_ino) == (before.st_mode, before.st_mtime_ns, before.st_ino)
    assert (root / "lib").stat().st_ino != after.st_ino


def test_a_handle_that_was_open_before_the_file_got_a_locked_name_does_not_change_it(tmp_path: Path) -> None:
    root = tmp_path / "lent"
    root.mkdir()
    with served(root, default_rules()) as lease:
        lease.put(b"rc", b"the executor's")
        handle = lease.handle(b"rc", READ | WRITE)
        os.link(root / "rc", root / ".envrc")
        lease.write_at(handle, b"EVIL", 0)
        lease.by_handle(b"rc", READ, attributes(mode=0o777))
        assert (root / ".envrc").read_text() == "the executor's"


def lent(tmp_path: Path, files: dict[str, str], links: dict[str, str]) -> tuple[Path, ViewRules]:
    """Make a directory of the lender's and return it with the rules by which it is lent."""
    root = tmp_path / "lent"
    root.mkdir()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name, target in links.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target.format(root=root))
    return root, guarded(root, lambda locked, hidden: default_rules(hidden=hidden, locked=locked))


@pytest.mark.parametrize(
    ("links", "changed"),
    [
        ({".envrc": "env/rc"}, b"env/rc"),
        ({".envrc": "./x/../env/rc"}, b"env/rc"),
        ({".envrc": "{root}/env/rc"}, b"env/rc"),
        ({".envrc": "../lent/env/rc"}, b"env/rc"),
        ({".envrc": "env/now/rc", "env/now": "."}, b"env/rc"),
        ({"CLAUDE.md": "docs/agents.md"}, b"docs/agents.md"),
        ({".claude/skills": "../skills"}, b"skills/x/SKILL.md"),
        ({".claude/skills": "../skills", "skills/y": "../docs"}, b"docs/agents.md"),
        ({".envrc": "env/absent"}, b"env/absent"),
        ({"sub/.husky": "../tools/*[hooks]"}, b"tools/*[hooks]/pre-commit"),
    ],
)
def test_what_a_locked_link_leads_to_is_not_changed(tmp_path: Path, links: dict[str, str], changed: bytes) -> None:
    files = dict.fromkeys(["env/rc", "docs/agents.md", "skills/x/SKILL.md", "x/y", "tools/*[hooks]/pre-commit"], "mine")
    root, rules = lent(tmp_path, files, links)
    above = changed.split(b"/")[0]
    with served(root, rules) as lease:
        assert lease.put(changed, b"EVIL") == DENIED
        assert lease.rename(above, b"away") == DENIED
        assert lease.put(b"own", b"EVIL") == OK
        assert lease.rename(b"own", changed, posix=True) == DENIED
        assert lease.remove(changed) == DENIED
    for path in root.rglob("*"):
        assert path.name == "own" or not path.is_file() or path.read_text() == "mine"


def test_a_link_on_the_way_of_a_locked_one_is_not_exchanged(tmp_path: Path) -> None:
    files = {"env/one/rc": "mine", "env/two/x": "mine"}
    root, rules = lent(tmp_path, files, {".envrc": "env/now/rc", "env/now": "one"})
    with served(root, rules) as lease:
        lease.put(b"env/two/rc", b"EVIL")
        assert lease.remove(b"env/now") == DENIED
        assert lease.rename(b"env/two", b"env/now", posix=True) == DENIED
    assert (root / ".envrc").read_text() == "mine"


@pytest.mark.parametrize("target", ["conf/production", "{root}/conf/production", "conf/now/production"])
def test_what_a_hidden_link_leads_to_is_hidden(tmp_path: Path, target: str) -> None:
    files = {"conf/production": "SECRET", "conf/x": "x"}
    root, rules = lent(tmp_path, files, {".env": target, "conf/now": "."})
    with served(root, rules) as lease:
        assert lease.open(b"/workspace/conf/production", READ).status == ABSENT
        assert lease.names(b"conf") == [b"now", b"x"]
        assert lease.rename(b"conf", b"c") == DENIED
        assert lease.put(b"conf/production", b"EVIL") == DENIED
    assert (root / "conf/production").read_text() == "SECRET"


def test_a_link_to_what_holds_it_or_lies_elsewhere_guards_nothing(tmp_path: Path) -> None:
    links = {".vscode/all": "..", ".claude/sub": "../deep/..", ".env": "/etc/hostname", ".envrc": "../../x", "a": "b/c"}
    root, rules = lent(tmp_path, {"b/c": "mine", "deep/x": "mine"}, links)
    with served(root, rules) as lease:
        assert lease.put(b"b/c", b"EVIL") == OK
        assert lease.put(b"deep/x", b"EVIL") == OK


def test_links_that_turn_in_circles_or_are_too_many_end(tmp_path: Path) -> None:
    root, _ = lent(tmp_path, {"x": ""}, {".envrc": "a", "a": "b", "b": ".envrc"})
    for number in range(MAX_PLACES + 1):
        (root / ".claude").mkdir(exist_ok=True)
        (root / ".claude" / str(number)).symlink_to(f"../d{number}")
    with pytest.raises(SubletError, match="links and settings"):
        guarded(root, lambda locked, hidden: default_rules(hidden=hidden, locked=locked))


@pytest.mark.parametrize("name", [b"SECRET~1.JSO", b"env~1", b"x/ENVRC~1", b"CLAUDE~1/SETTIN~1.JSO", b"ABCDEF~12"])
def test_short_names_are_hidden_where_the_file_system_has_some(name: bytes) -> None:
    parts = name.split(b"/")
    assert Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], folds=True).hidden(parts)
    assert Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], folds=True, git="ro").without_repository().hidden(parts)
    assert not Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, []).hidden(parts)


def test_a_link_with_a_hidden_name_is_not_made_so_that_the_next_lease_hides_nothing(tmp_path: Path) -> None:
    root, rules = lent(tmp_path, {"src/main.py": "mine"}, {})
    with served(root, rules) as lease:
        assert lease.mkdir(b"x") == OK
        assert lease.mkdir(b"x/.aws") == OK
        for name in (b"x/c.pem", b"x/.aws/a", b"new.pem"):
            assert lease.ask(20, string(b"src") + string(b"/workspace/" + name)).status == DENIED
            assert lease.ask(20, string(b"nowhere") + string(b"/workspace/" + name)).status == DENIED
        assert lease.ask(20, string(b"../src") + string(b"/workspace/x/l")).status == OK
        assert lease.put(b"f", b"f") == OK
        assert lease.put(b"x/own.key", b"its own") == OK
        for posix in (False, True):
            assert lease.rename(b"x/l", b"x/c.pem", posix=posix) == DENIED
            assert lease.rename(b"x/l", b"x/own.key", posix=posix) != OK
        assert lease.link(b"x/l", b"x/c.pem") != OK
        assert lease.link(b"f", b"x/c.pem") == DENIED
        assert any("x/c.pem: a link of this name would have" in line for line in lease.denied)
        assert lease.content(b"x/own.key") == b"its own"
    assert [path for path in root.rglob("*") if path.is_symlink()] == [root / "x" / "l"]
    again = guarded(root, lambda locked, hidden: default_rules(hidden=hidden, locked=locked))
    assert not again.hidden((b"src", b"main.py"))


@pytest.mark.parametrize("holder", [b".docker", b".config", b".cargo"])
def test_no_directory_brings_a_link_under_a_hidden_name(tmp_path: Path, holder: bytes) -> None:
    """``.docker/config.json`` is hidden, ``a/config.json`` is not: a link there does not come along with ``a``."""
    root, rules = lent(tmp_path, {"src/main.py": "mine"}, {})
    with served(root, rules) as lease:
        lease.mkdir(b"a")
        for name in (b"config.json", b"gh", b"credentials"):
            assert lease.ask(20, string(b"../src") + string(b"/workspace/a/" + name)).status == OK
        assert lease.rename(b"a", holder) == DENIED
        assert lease.rename(b"a", b"x.pem") != OK
    again = guarded(root, lambda locked, hidden: default_rules(hidden=hidden, locked=locked))
    assert not again.hidden((b"src", b"main.py"))


def a_chain(length: int) -> dict[str, str]:
    """Return directories, each locked by a link in the one before; the names go against the order of the walk."""
    names = [f"d{99 - number}" for number in range(length)]
    return {".claude/skills": f"../{names[0]}"} | {f"{above}/next": f"../{below}" for above, below in pairwise(names)}


def test_links_in_what_links_lead_to_are_followed_to_their_end_or_refused(tmp_path: Path) -> None:
    links = a_chain(MAX_ROUNDS - 1)
    _, rules = lent(tmp_path, {}, links)
    assert all(rules.locked((name.partition("/")[0].encode(), b"x")) for name in links)
    (tmp_path / "longer").mkdir()
    with pytest.raises(SubletError, match="links that lead to links"):
        lent(tmp_path / "longer", {}, a_chain(MAX_ROUNDS + 2))
