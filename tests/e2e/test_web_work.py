"""What the owner of a worker sees on the page, and what those who want work done are told: D58 and D59 by each face."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from mcp import Client

from sublet.daemon.config.paths import resolve_home
from support.browser import chromium
from support.daemons import Daemon, pair, two_daemons, wait_for
from support.leases import begin, finish, marker, processes_with
from support.mcp_face import server_of
from support.tool_answers import facts

pytestmark = pytest.mark.timeout(240)
NOWHERE = "/usr/bin:/bin"
INSTALL = "npm install -g @openai/codex"


def test_D58_the_page_and_the_directory_say_what_is_missing(tmp_path: Path) -> None:
    lender, worker = Daemon(tmp_path / "a"), Daemon(tmp_path / "b", environ={"PATH": NOWHERE, "HOME": str(tmp_path)})
    try:
        lender.up()
        worker.up("--agent", "codex")
        pair(lender, worker)

        async def directory() -> str:
            async with Client(server_of(resolve_home({"SUBLET_HOME": str(lender.home)}))) as host:
                return str(facts(await host.call_tool("directory", {})))

        told = anyio.run(directory)
        assert "its program `codex` is missing" in told
        with chromium() as browser:
            browser.open(worker.json("web")["url"])
            browser.click("nav a", "Agents")
            shown = browser.wait_text(INSTALL, ".card")
            assert "not well" in shown
            assert "codex" in shown
            assert browser.messages() == []
    finally:
        lender.down()
        worker.down()


def test_D59_the_owner_stops_work_on_the_page(tmp_path: Path) -> None:
    directory = tmp_path / "lent"
    directory.mkdir()
    with two_daemons(tmp_path / "d") as (delegator, executor), chromium() as browser:
        one = marker()
        found = begin(delegator, directory, f"echo under way; sleep {one}")
        browser.open(executor.json("web")["url"])
        browser.wait_text("active", ".card")
        wait_for(lambda: processes_with(one), what="the agent's work")
        browser.click(".card button", "Stop")
        browser.wait_text("Really stop it?", ".card button")
        assert processes_with(one), "one click is no decision"
        browser.click(".card button", "Really stop it?")
        browser.wait_text("The work is stopped, and its lender is told.")
        ended = finish(delegator, found)
        assert ended.state == "cancelled"
        assert ended.error is not None
        assert "owner" in ended.error.message
        assert processes_with(one) == []
        assert browser.messages() == []
