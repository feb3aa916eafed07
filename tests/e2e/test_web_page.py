"""A person at the web page in a real browser, with real daemons, a real lease and a real agent (DESIGN 9, 10)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.browser import Browser, chromium
from support.chat_process import Step, chat_stub
from support.daemons import Daemon, two_daemons
from support.leases import begin, finish
from support.terminal import typed

pytestmark = pytest.mark.timeout(240)

SECRET = "correct horse battery"
POLICY: dict[str, object] = {
    "version": 1,
    "global": [
        {
            "id": "ask-first",
            "effect": "approval",
            "action": "tool.call",
            "subject": {"kind": "agent"},
            "resource": "shell.exec",
        },
        {
            "id": "no-notes",
            "effect": "deny",
            "action": "tool.call",
            "subject": {"kind": "agent"},
            "resource": "file.write",
            "reason": "this agent <i>leaves</i> no notes",
        },
    ],
}
MARKUP = "<script>document.title='taken over'</script><img src=x onerror=document.title='taken over'>"
HOSTILE = f"{MARKUP} \u202egnp.exe"
COMMAND = "sed -i s/hello/world/ README.md; printf x > '<script>x<b>.txt'; echo \u202e"


def go(browser: Browser, view: str) -> None:
    """Choose a view as a person does."""
    browser.click("nav a", view)


def safe(browser: Browser) -> None:
    """Nothing of what others wrote became a part of the page."""
    assert browser.run("return document.scripts.length") == 1
    assert browser.run("return document.querySelectorAll('main script, main i, main b.txt, img[onerror]').length") == 0
    assert "taken over" not in browser.run("return document.title")
    assert "\u202e" not in browser.text()


def test_a_person_follows_a_lease_approves_a_call_and_sees_why_another_was_denied(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "README.md").write_text("hello\n")
    script: list[Step] = [
        {"calls": [["file_write", {"path": "notes.txt", "content": "x"}]]},
        {"calls": [["shell_exec", {"command": COMMAND}]]},
        {"say": f"finished {HOSTILE}"},
        {"say": "pong <b>"},
    ]
    with (
        chat_stub(tmp_path / "chat", script) as stub,
        two_daemons(tmp_path / "d", agent=stub.agent(), executor_policy=POLICY) as (lender, executor),
        chromium() as browser,
    ):
        status, shown = typed(
            executor, "approver", "init", answers=[("New passphrase: ", SECRET), ("Once more: ", SECRET)]
        )
        assert status == 0, shown
        _log_in(browser, lender)

        delegation = begin(lender, project, "Go.", "--description", HOSTILE)
        # Live: nobody has loaded anything anew.
        browser.wait_text("waiting for approval")
        assert "running" in browser.text(".card")
        assert MARKUP in browser.text(".card")
        safe(browser)

        used = executor.json("web")["url"]
        browser.open(used)
        browser.wait_text("1", "nav .badge")
        _approve(browser)
        finish(lender, delegation)
        _denials_and_events(browser, executor)

        browser.click("button", "Log out")
        browser.wait_text("Log in to Sublet")
        browser.open(used)
        browser.wait_text("This link does not log in")
        assert [line for line in browser.messages() if "/api/login" not in line] == []
        # A login that is over, as after its twelve hours.
        browser.run("localStorage.setItem('sublet.key', 'x'.repeat(43))")
        browser.open(executor.info["web"])
        browser.wait_text("Log in to Sublet")
        assert len(browser.messages()) < 5, "it was not tried again and again"

        _lease(browser, lender, delegation)
        assert (project / "README.md").read_text() == "world\n"
        for daemon in (lender, executor):
            assert SECRET not in daemon.log()
            assert used.partition("#login=")[2] not in daemon.log()


def _log_in(browser: Browser, daemon: Daemon) -> None:
    link = daemon.json("web")
    assert link["page"] == f"{daemon.info['web']}/"
    browser.open(link["url"])
    browser.wait_text("Nothing is lent yet")
    assert "login" not in browser.url
    [cookie] = browser.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert browser.run("return document.cookie") == ""
    browser.wait_text("live", ".connection")
    assert browser.messages() == []
    _words(browser)


def _words(browser: Browser) -> None:
    """What hides is written out, markup is text, and arguments are spread without a character being changed."""
    shown = browser.run(
        "return import('/dom.js').then((dom) => { const p = dom.h('p', {}, arguments[0]);"
        " return [p.textContent, p.querySelectorAll('b').length, p.querySelectorAll('.hidden-char').length]; })",
        "a\u202e<b>\u200b\x1b\U000e0041\ta",
    )
    assert shown == ["aU+202E<b>U+200BU+001BU+E0041\ta", 0, 4]
    canonical = '{"a":[1,12345678901234567890,"x\\"{,:"],"b":{},"c":[]}'
    spread = browser.run("return import('/approvals.js').then((module) => module.spread(arguments[0]))", canonical)
    assert json.loads(spread) == json.loads(canonical)
    assert "12345678901234567890" in spread
    assert spread.count("\n") == 8


def _approve(browser: Browser) -> None:
    go(browser, "Approvals")
    call = browser.wait_text("sed -i", ".call")
    assert "'<script>x<b>.txt'; echo \\u202e" in call, "the exact call, with nothing hidden in it"
    assert "coder wants to call shell.exec" in browser.text(".question").replace("\n", " ")
    safe(browser)
    browser.type(".question input[type=password]", SECRET)
    browser.click(".question button", "Approve")
    browser.wait_text("Nothing waits for you")
    browser.wait_text("human by passphrase")


def _denials_and_events(browser: Browser, executor: Daemon) -> None:
    go(browser, "Denials")
    browser.wait_text("no-notes")
    text = browser.run("return [...document.querySelectorAll('.denial')].map((one) => one.innerText).join('\\n--\\n')")
    denied = next(one for one in str(text).split("\n--\n") if "no-notes" in one)
    for told in ("deny", "agent coder", "tool.call on file.write", "this agent <i>leaves</i> no notes", "layer global"):
        assert told in denied
    safe(browser)
    go(browser, "Events")
    browser.wait_text("tool result")
    assert executor.json("ask", "ping")["result"] == "pong <b>"
    # A route and a reply, live.
    browser.wait_text("pong <b>", ".events")
    assert {"route decided", "dispatch sent", "dispatch result"} <= set(browser.text(".events").splitlines())
    safe(browser)
    browser.type("input[type=search]", "file.write")
    browser.wait(lambda: "tool result" not in browser.text(".events"), what="the filter")
    assert "policy rejected" in browser.text(".events")


def _lease(browser: Browser, lender: Daemon, delegation: str) -> None:
    # Logged in as before, since the login lasts.
    browser.open(lender.info["web"])
    browser.wait_text("completed", ".card")
    browser.click(".card")
    browser.wait_text("Words of bob")
    assert f"finished {MARKUP}" in browser.text(".untrusted")
    assert delegation in browser.url
    browser.click("button", "Show the diff")
    diff = browser.wait_text("+world", ".diff")
    assert "-hello" in diff
    assert "b/<script>x<b>.txt" in diff
    safe(browser)
    assert browser.messages() == []

    # The page comes back by itself, and is still logged in.
    lender.run("down")
    browser.wait_text("The connection to the daemon is lost")
    lender.up()
    browser.wait_text("live", ".connection")
    browser.wait_text("Words of bob")
