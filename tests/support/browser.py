"""A real headless Chromium, driven by plain WebDriver (W3C) over HTTP."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

PROGRAMS = ("chromium", "chromedriver")
START_SECONDS = 60.0
CALL_SECONDS = 60.0
END_SECONDS = 10.0
WAIT_SECONDS = 60.0
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_MEANWHILE = ("stale element reference", "element click intercepted", "element not interactable")
_LISTENING = re.compile(r"started successfully on port ([0-9]+)")


class Browser:
    """One window with a profile of its own."""

    def __init__(self, client: httpx.Client, session: str) -> None:
        self._client = client
        self._path = f"/session/{session}"

    def open(self, url: str) -> None:
        """Go to ``url`` in a new document."""
        self._call("POST", "/url", {"url": "about:blank"})
        self._call("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """Run the body of a function in the page and return what it returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector: str = "body") -> str:
        """Return the visible text of the first element that fits, or nothing where none does."""
        found = self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return str(found)

    def wait_text(self, words: str, selector: str = "body", seconds: float = WAIT_SECONDS) -> str:
        """Return the text of ``selector`` once it holds ``words``."""
        return str(self.wait(lambda: found if words in (found := self.text(selector)) else "", seconds, words))

    def wait(self, condition: Any, seconds: float = WAIT_SECONDS, what: str = "a condition") -> Any:
        """Return what ``condition`` returns once that is true.

        Raises:
            AssertionError: with what the page shows.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := condition():
                return found
            time.sleep(0.05)
        raise AssertionError(f"{what!r} did not come within {seconds} s; the page at {self.url} shows:\n{self.text()}")

    def click(self, selector: str, containing: str = "") -> None:
        """Click the first visible element that fits, once it is there, as a person does."""
        self.wait(lambda: self._done(selector, containing, "click", {}), what=f"a click on {selector} {containing}")

    def type(self, selector: str, keys: str) -> None:
        """Type into the first element that fits."""
        self.wait(lambda: self._done(selector, "", "value", {"text": keys}), what=f"typing into {selector}")

    @property
    def url(self) -> str:
        """Where it is."""
        return str(self._call("GET", "/url"))

    def cookies(self) -> list[dict[str, Any]]:
        """Return the cookies of the page, also those that no script can read."""
        found = self._call("GET", "/cookie")
        assert isinstance(found, list)
        return found

    def messages(self) -> list[str]:
        """Return what the page has complained of since the last time: errors of scripts and refused contents."""
        return [str(one["message"]) for one in self._call("POST", "/se/log", {"type": "browser"})]

    def resize(self, width: int, height: int) -> None:
        """Make the window so large."""
        self._chrome(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def colours(self, scheme: str) -> None:
        """Prefer ``light`` or ``dark``."""
        self._chrome("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def picture(self, path: Path) -> None:
        """Write a PNG of what is seen."""
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def _find(self, selector: str, containing: str) -> Any:
        return self.run(
            "return [...document.querySelectorAll(arguments[0])].find("
            "(one) => one.innerText.includes(arguments[1]) && one.offsetParent !== null && !one.disabled)",
            selector,
            containing,
        )

    def _done(self, selector: str, containing: str, what: str, how: dict[str, object]) -> bool:
        """Do something to an element; tell whether it was there, as the page may have changed meanwhile."""
        found = self._find(selector, containing)
        if not found:
            return False
        try:
            self._call("POST", f"/element/{found[_ELEMENT]}/{what}", how)
        except AssertionError as error:
            if str(error).partition(":")[0] in _MEANWHILE:
                return False
            raise
        return True

    def _chrome(self, command: str, parameters: dict[str, object]) -> None:
        self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _call(self, method: str, path: str, body: dict[str, object] | None = None) -> Any:
        answer = self._client.request(method, self._path + path, json=body).json()["value"]
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(f"{answer['error']}: {answer['message']}")
        return answer


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser while the block runs; where there is none, the test is skipped, but never in CI."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        why = f"{' and '.join(missing)} missing: scripts/setup-browser installs them"
        if os.environ.get("SUBLET_TEST_BROWSER") == "required":
            pytest.fail(why)
        pytest.skip(why)
    with (
        tempfile.TemporaryDirectory(prefix="web-", ignore_cleanup_errors=True) as profile,
        _driver(profile) as address,
        httpx.Client(base_url=address, timeout=CALL_SECONDS, trust_env=False) as client,
    ):
        answer = client.post("/session", json=_wishes(profile), timeout=START_SECONDS).json()["value"]
        assert "sessionId" in answer, answer
        try:
            yield Browser(client, answer["sessionId"])
        finally:
            with suppress(httpx.HTTPError):
                client.delete(f"/session/{answer['sessionId']}")


@contextmanager
def _driver(profile: str) -> Iterator[str]:
    """Run the driver and yield its address; at the end nothing of it or its browser is left."""
    with subprocess.Popen(
        ["chromedriver", "--port=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "HOME": profile, "XDG_CONFIG_HOME": profile, "XDG_CACHE_HOME": profile},
    ) as driver:
        try:
            yield _address(driver)
        finally:
            driver.kill()
            # A browser that was not closed in order runs on; all its processes name its profile.
            left = [one for one in psutil.process_iter(["cmdline"]) if profile in " ".join(one.info["cmdline"] or [])]
            for one in left:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(left, timeout=END_SECONDS)


def _address(driver: subprocess.Popen[str]) -> str:
    assert driver.stdout is not None
    for line in driver.stdout:
        if match := _LISTENING.search(line):
            return f"http://127.0.0.1:{match[1]}"
    raise AssertionError("chromedriver has ended")


def _wishes(profile: str) -> dict[str, object]:
    arguments = [
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--no-proxy-server",
        "--window-size=1200,900",
        f"--user-data-dir={profile}/profile",
    ]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    options = {"args": arguments, "binary": shutil.which("chromium")}
    return {
        "capabilities": {
            "alwaysMatch": {
                "browserName": "chrome",
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL"},
            }
        }
    }
