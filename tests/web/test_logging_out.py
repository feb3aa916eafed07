"""What the page still asks for while somebody logs out: nothing that the daemon would refuse."""

from __future__ import annotations

from pathlib import Path

from support.browser import chromium
from support.daemons import Daemon

HELD = """
const real = window.fetch;
const gone = new Promise((go) => { window.release = go; });
window.fetch = async (path, options) => { if (path === '/api/approvals') await gone; return real(path, options); };
return import('/api.js').then((api) => {
  window.status_of = (path) => api.get(path).then(() => 200, (failure) => failure.status);
  window.held = window.status_of('/api/approvals');
});
"""
"""Holds a question of a view on its way, as a busy machine does."""
BROKEN = """
const real = window.fetch;
window.fetch = (path, options) => path === '/api/approvals'
  ? Promise.resolve(new Response(new ReadableStream({ start: (body) => body.error(new TypeError('network error')) })))
  : real(path, options);
return import('/view.js').then((view) => view.keepFresh(document.createElement('div'),
  (signal) => import('/api.js').then((api) => api.get('/api/approvals', signal)), () => false));
"""
"""Breaks an answer in its middle, as a daemon does that ends."""


def test_nothing_is_refused_to_a_page_that_is_logged_out(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "d")
    with chromium() as browser:
        try:
            daemon.up()
            browser.open(daemon.json("web")["url"])
            browser.wait_text("live", ".connection")
            browser.run(HELD)
            browser.click("button", "Log out")
            browser.wait_text("Log in to Sublet")
            browser.run("window.release()")
            assert browser.run("return window.held") == 401
            assert browser.run("return window.status_of('/api/status')") == 401
            assert browser.messages() == []
        finally:
            daemon.down()


def test_an_answer_that_breaks_off_is_no_error_of_the_page(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "d")
    with chromium() as browser:
        try:
            daemon.up()
            browser.open(daemon.json("web")["url"])
            browser.wait_text("live", ".connection")
            browser.run(BROKEN)
            browser.run("return new Promise((done) => setTimeout(done))")
            assert browser.messages() == []
        finally:
            daemon.down()
