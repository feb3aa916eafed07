"""Which names are locked and hidden since the lender's own links and settings of git lead to them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.workspace.export import ViewRules
from sublet.workspace.git.obeyed import HOOKS
from sublet.workspace.view import led_to
from sublet.workspace.view.led_to import MAX_HOPS, MAX_PLACES, MAX_ROUNDS, MAX_STEPS, LedTo, guarded
from sublet.workspace.view.rules import Rules


def found(root: Path, *, exclude: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return what is locked and hidden besides, of a directory with one name of each kind."""
    asked: list[tuple[Sequence[str], Sequence[str]]] = []

    def rules_of(locked: Sequence[str], hidden: Sequence[str]) -> ViewRules:
        asked.append((locked, hidden))
        return Rules([".git", "secret", *hidden], ["lock", *locked], [], exclude=exclude)

    fds = len(os.listdir("/proc/self/fd"))
    rules = guarded(root, rules_of)
    assert len(os.listdir("/proc/self/fd")) == fds
    assert asked[0] == ((), ())
    locked, hidden = asked[-1]
    for pattern in (*locked, *hidden):
        parts = pattern.lstrip("/").replace("[*]", "*").replace("[?]", "?").replace("[[]", "[").encode().split(b"/")
        assert rules.locked(parts) or pattern not in locked
        assert rules.hidden(parts) or pattern not in hidden
    return list(locked), list(hidden)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "lent"
    for name in ("d/e", "secret.d", "hide"):
        (made / name).mkdir(parents=True)
    return made


@pytest.mark.parametrize(
    ("links", "locked", "hidden"),
    [
        ({}, [], []),
        ({"plain": "d/a"}, [], []),
        ({"lock": "d/a"}, ["/d/a"], []),
        ({"d/lock": "a"}, ["/d/a"], []),
        ({"d/lock": "../x"}, ["/x"], []),
        ({"d/lock": "./e/../y"}, ["/d/y"], []),
        ({"d/lock": "e//z/"}, ["/d/e/z"], []),
        ({"lock": "{root}/d/a"}, ["/d/a"], []),
        ({"lock": "../lent/d/a"}, ["/d/a"], []),
        ({"lock": "/etc/passwd"}, [], []),
        ({"lock": "../other"}, [], []),
        ({"lock": "../lent"}, [], []),
        ({"lock": "."}, [], []),
        ({"d/lock": "."}, [], []),
        ({"d/lock": ".."}, [], []),
        ({"d/e/lock": ".."}, [], []),
        ({"d/lock": "../.git/x"}, [], []),
        ({"lock": "secret"}, ["/secret"], []),
        ({"secret": "d/a"}, [], ["/d/a"]),
        ({"secret": "lock"}, [], ["/lock"]),
        ({"d/secret": "e"}, [], ["/d/e"]),
        ({"lock": "way", "way": "d/a"}, ["/way", "/d/a"], []),
        ({"lock": "way/a", "way": "d"}, ["/way", "/d/a", "/d"], []),
        ({"secret": "way", "way": "d/a"}, ["/way", "/d/a"], ["/d/a"]),
        ({"lock": "one", "one": "two", "two": "d/a"}, ["/one", "/two", "/d/a"], []),
        ({"lock": "d", "d/e/in": "../../hide/x"}, ["/d", "/hide/x"], []),
        ({"lock": "lock"}, [], []),
        ({"lock": "loop", "loop": "loop"}, ["/loop"], []),
        ({"lock": "d/*?[x]"}, ["/d/[*][?][[]x]"], []),
        ({"lock": "out/x", "out": "/nowhere"}, ["/out"], []),
        ({"lock": "d/a", "e": "d/a", "d/lock": "a"}, ["/d/a"], []),
        ({"secret/lock": "d/a"}, [], []),
    ],
)
def test_what_links_lead_to(root: Path, links: dict[str, str], locked: list[str], hidden: list[str]) -> None:
    for name, target in links.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target.format(root=root))
    also_locked, also_hidden = found(root)
    assert (sorted(also_locked), sorted(also_hidden)) == (sorted(locked), sorted(hidden))


def test_what_is_left_out_leads_nowhere(root: Path) -> None:
    (root / "secret").symlink_to("d/a")
    (root / "hide/lock").symlink_to("../d/b")
    assert found(root) == (["/d/b"], ["/d/a"])
    assert found(root, exclude=["secret", "/hide"]) == ([], [])


def test_settings_of_git_lead_to_files_and_hooks(root: Path) -> None:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "-C", str(root), "config", "core.hooksPath", "d/hooks"], check=True)
    assert found(root) == (["/d/hooks"], [])
    (root / "d/hooks").symlink_to("../hide")
    assert found(root) == (["/d/hooks", "/hide"], [])
    (root / "d/hooks").unlink()
    subprocess.run(["git", "-C", str(root), "config", "core.hooksPath", "."], check=True)
    assert found(root) == ([f"/{name.decode()}" for name in HOOKS], [])
    subprocess.run(["git", "-C", str(root), "config", "core.hooksPath", ".git/x"], check=True)
    assert found(root) == ([], [])


def test_repositories_above_and_inside_count(root: Path) -> None:
    for place, hooks in ((root.parent, "lent/d/up"), (root / "d/e", "own")):
        subprocess.run(["git", "init", "-q", str(place)], check=True)
        subprocess.run(["git", "-C", str(place), "config", "core.hooksPath", hooks], check=True)
    assert {"/d/e/own", "/d/up"} <= set(found(root)[0])


def test_the_directory_itself_may_be_gone(tmp_path: Path) -> None:
    assert found(tmp_path / "none") == ([], [])


def refused(root: Path) -> None:
    with pytest.raises(SubletError, match="would have to be guarded") as caught:
        found(root)
    assert caught.value.code is ErrorCode.WORKSPACE_INVALID


def test_a_number_of_names_is_guarded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (MAX_PLACES, MAX_HOPS, MAX_STEPS, MAX_ROUNDS) == (300, 40, 4096, 8)
    monkeypatch.setattr(led_to, "MAX_PLACES", 2)
    for number in range(2):
        (root / f"l{number}").mkdir()
        (root / f"l{number}/lock").symlink_to(f"../d/{number}")
        (root / f"l{number}/secret").symlink_to(f"../d/s{number}")
    locked, hidden = found(root)
    assert (len(locked), len(hidden), LedTo(locked, hidden).count) == (2, 2, 4)
    (root / "lock").symlink_to("d/more")
    refused(root)


def test_a_number_of_rounds_is_looked_through(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link in what a link leads to is found a round later."""
    monkeypatch.setattr(led_to, "MAX_ROUNDS", 4)
    for number in range(3):
        (root / f"r{number}").mkdir()
        (root / f"r{number}/in").symlink_to(f"../r{number + 1}")
    (root / "r3").mkdir()
    (root / "lock").symlink_to("r1")
    assert len(found(root)[0]) == 3
    monkeypatch.setattr(led_to, "MAX_ROUNDS", 3)
    refused(root)


def test_a_path_that_is_too_long_to_be_guarded_is_refused(root: Path) -> None:
    for target, taken in (("/".join(["x"] * 200), True), ("/".join(["x" * 200] * 6), False)):
        (root / "lock").symlink_to(target)
        if taken:
            assert found(root)[0] == [f"/{target}"]
        else:
            refused(root)
        (root / "lock").unlink()
