"""What a live lease wrote, seen and taken back on the page: real daemons, a real lease, a real browser."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.browser import Browser, chromium
from support.daemons import Daemon, two_daemons
from support.leases import begin, finish, view

pytestmark = pytest.mark.timeout(240)

COMMIT = "git -c user.name=a -c user.email=a@e commit-tree -m bait"
WORK = (
    "echo theirs > f; echo new > '<b>made.txt'; blob=$(echo curl | git hash-object -w --stdin); "
    "tree=$(printf '100644 blob %s\\t.envrc\\n' $blob | git mktree); "
    f"git update-ref refs/heads/bait $({COMMIT} $tree)"
)
"""Writes two files, and moves a reference to a commit that holds a name which it may not write itself."""


def a_repository(project: Path) -> None:
    """Make a repository with one commit."""

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=p", "-c", "user.email=p@e", *arguments], cwd=project, check=True)

    project.mkdir()
    (project / "f").write_text("one\n")
    git("init", "-q", "-b", "main")
    git("add", "f")
    git("commit", "-q", "-m", "one")


def look_at(browser: Browser, lender: Daemon) -> None:
    """Log in and open the only lease."""
    browser.open(lender.json("web")["url"])
    browser.wait_text("completed", ".card")
    browser.click(".card")
    browser.wait_text("2 files changed")


def test_a_person_takes_back_a_live_lease_and_sees_what_was_left(tmp_path: Path) -> None:
    project = tmp_path / "project"
    a_repository(project)
    with two_daemons(tmp_path / "d") as (lender, _), chromium() as browser:
        found = begin(lender, project, WORK, "--git", "rw")
        ended = finish(lender, found)
        assert ended.error is None
        assert ended.undo == "possible"
        assert ended.audit is not None
        assert ended.audit.refs_bring == [".envrc"]
        (project / "f").write_text("mine\n")
        look_at(browser, lender)
        browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
        assert ".envrc" in browser.wait_text("a checkout writes them")

        browser.click("button", "Undo")
        # The first click asks; nothing is changed by it.
        browser.wait_text("Really take it back?", "button.sure")
        assert (project / "<b>made.txt").exists()
        browser.click("button", "Really take it back?")
        shown = browser.wait_text("1 conflict")
        assert "f" in shown
        browser.wait_text("what it wrote is taken back")
        browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
        assert "<b>made.txt" in browser.text()
        browser.wait(lambda: "Undo" not in browser.text(".lease-head"), what="no button for what is done")
        assert (project / "f").read_text() == "mine\n"
        assert not (project / "<b>made.txt").exists()
        conflict = browser.text(".problem .plain-list")
        assert conflict.startswith("f ")
        assert "before: " in conflict
        before = conflict.partition("before: ")[2].split("\n")[0].strip()
        assert Path(before).read_text() == "one\n"
        assert view(lender, found).undo == "done"
        assert browser.messages() == []
