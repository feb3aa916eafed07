"""Nodes and offices on the page: two real paired daemons, a real member of an office, a real browser."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from support.browser import Browser, chromium
from support.daemons import SHELL_AGENT, two_daemons, wait_for
from support.office_client import Client, opened

pytestmark = pytest.mark.timeout(240)

PICTURES = os.environ.get("SUBLET_TEST_PICTURES")
"""A directory in which to leave what was seen."""
ENTER = "\ue007"
KICK_BOB = ".members .row:last-child button"


def seen(browser: Browser, name: str) -> None:
    """Nothing is cut at the width of a telephone, and every control has a name; leave pictures if asked to."""
    for width in (390, 1280):
        browser.resize(width, 900)
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), f"{name} at {width}"
        views = "[...document.querySelectorAll('nav a')]"
        whole = browser.run(f"return {views}.every((one) => one.getBoundingClientRect().right <= innerWidth)")
        assert whole, f"the views at {width}"
        if PICTURES:
            browser.picture(Path(PICTURES) / f"{name}-{width}.png")


async def joined(made: Any) -> Client:
    client = await opened(made["url"])
    assert await client.authenticate(made["token"]) is not None
    assert await client.join(made["name"], made["role"], made["office_id"]) == [True, None]
    return client


def test_a_person_sees_nodes_and_offices_and_sends_a_member_away(tmp_path: Path) -> None:
    with two_daemons(tmp_path / "d", agent=SHELL_AGENT) as (ours, theirs), chromium() as browser:
        browser.open(ours.json("web")["url"])
        browser.click("nav a", "Offices")
        browser.wait_text("There is no office yet.")
        ours.json("office", "create", "desk")
        made = {
            name: ours.json("office", "token", "desk", "--role", role, "--name", name)
            for name, role in (("alice", "agent"), ("bob", "computer"))
        }
        asyncio.run(worked_in(browser, made))
        assert [one["name"] for one in ours.json("office", "list")["offices"][0]["members"]] == ["alice"]

        browser.click("nav a", "Nodes")
        here = ours.json("nodes")[0]["node_id"]
        browser.wait_text(here, ".node-card")
        browser.wait_text("shell@", ".rows .row")
        there = wait_for(lambda: [one for one in ours.json("nodes") if one["state"] == "reached"], what="the node")[0]
        browser.wait(
            lambda: there["node_id"] in cards(browser) and "called bob" in cards(browser), what="the other node"
        )
        shown = cards(browser)
        assert "heard" in shown
        assert "1 agent, 0 busy" in shown
        assert "this daemon" in shown
        seen(browser, "nodes")
        browser.type("input[type=search]", "no such capability")
        browser.wait_text("No agent fits these words.")
        theirs.down()
        browser.wait(lambda: "silent" in cards(browser), 90, "the node that is gone")
        assert browser.messages() == []


def cards(browser: Browser) -> str:
    """Return what stands on all nodes."""
    all_cards = "[...document.querySelectorAll('.node-card')]"
    return str(browser.run(f"return {all_cards}.map((one) => one.innerText).join('\\n')"))


async def worked_in(browser: Browser, made: dict[str, Any]) -> None:
    """Let an Agent call a Computer that takes its time, and send the Computer away on the page meanwhile."""
    bob, alice = await joined(made["bob"]), await joined(made["alice"])
    asking = asyncio.create_task(alice.use("slow", timeout=600))
    await asyncio.to_thread(browser.wait_text, "2 of 2 members here, 1 call under way", ".card")
    await asyncio.to_thread(seen, browser, "offices")
    # By the keyboard alone; the first press only asks, and the question outlives what is shown anew meanwhile.
    await asyncio.to_thread(browser.type, KICK_BOB, ENTER)
    await asyncio.to_thread(browser.wait_text, "Really send away?", KICK_BOB)
    assert not asking.done()
    await asyncio.to_thread(browser.type, KICK_BOB, ENTER)
    await bob.closed()
    assert (await asking)["code"] == 404
    await asyncio.to_thread(browser.wait_text, "bob is sent away, and its token is useless.", ".toast")
    await asyncio.to_thread(browser.wait_text, "1 of 1 member here", ".card")
    await alice.socket.close()
    assert made["bob"]["token"] not in await asyncio.to_thread(browser.text)
