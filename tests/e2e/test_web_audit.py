"""What the page shows of a lease in a real browser: directories, others' edits, what nobody looked at, the sandbox."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sublet.workspace.confined.bounds import MAX_DEPTH
from support.browser import chromium
from support.daemons import two_daemons, wait_for
from support.leases import begin, finish

pytestmark = pytest.mark.timeout(240)

WORK = "mkdir 'made <b>here'; rmdir empty; chmod 700 sub; "
WORK += 'text=$(cat f); touch ready; until [ -e go ]; do sleep 0.05; done; echo "$text more" > f; touch done'


def test_the_page_shows_directories_others_edits_what_was_not_audited_and_the_sandbox(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("sub", "empty"):
        (project / name).mkdir(parents=True)
    (project / "sub").chmod(0o755)
    (project / "f").write_text("one\n")
    with two_daemons(tmp_path / "d") as (lender, _), chromium() as browser:
        delegation = begin(lender, project, WORK)
        wait_for(lambda: (project / "ready").exists())
        with (project / "f").open("a") as file:
            file.write("by a person\n")
        (project / ("d/" * (MAX_DEPTH + 5))).mkdir(parents=True)
        (project / "go").touch()
        ended = finish(lender, delegation)
        assert ended.error is None
        assert ended.audit is not None
        assert ended.audit.others_edits
        assert ended.audit.unaudited
        assert ended.sandbox_profile is not None

        browser.open(lender.json("web")["url"])
        browser.wait_text("completed", ".card")
        browser.click(".card")
        browser.wait_text("Its agent")
        browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        shown = browser.text("main")
        assert "Enforced there" in shown
        assert "Could not be read, so may have changed unseen" in shown
        assert f"nested deeper than {MAX_DEPTH} directories" in shown
        assert "Directories" in shown
        assert "made <b>here" in shown
        assert "empty" in shown
        assert "Edited by somebody else, too" in shown
        assert "overwritten; kept as" in shown
        assert browser.run("return document.querySelectorAll('main b').length") == 0
        for item in ended.sandbox_enforced:
            assert item in shown
        profile = ended.sandbox_profile
        assert ("has a network" if profile.allow_network else "has no network") in shown
        assert ("sees what is lent" if profile.cwd_only else "sees more of that machine") in shown
        assert browser.messages() == []
    assert os.path.exists(project / "done")
