"""Runs tests that throw a failure at a part of the product as a probe, with what they ask for."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sublet.daemon.paths import resolve_home
from support.fake_daemon_api import FakeDaemonApi
from support.fake_talk_api import FakeTalkApi

Test = Callable[..., Awaitable[None] | None]


def throwing(*tests: Test) -> Callable[[], Awaitable[None]]:
    """Return what runs each of ``tests`` in turn; arguments of parametrized ones are given by ``functools.partial``."""
    return partial(_run_all, tests)


async def _run_all(tests: tuple[Test, ...]) -> None:
    for test in tests:
        with ExitStack() as stack:
            wanted = inspect.signature(test).parameters
            given = {name: _made(name, stack) for name, one in wanted.items() if one.default is one.empty}
            running = test(**given)
            if running is not None:
                await running


def _made(name: str, stack: ExitStack) -> Any:
    if name == "monkeypatch":
        return stack.enter_context(pytest.MonkeyPatch.context())
    if name in ("tmp_path", "home"):
        root = stack.enter_context(tempfile.TemporaryDirectory(prefix="p-"))
        return Path(root) if name == "tmp_path" else resolve_home({"SUBLET_HOME": root})
    made: dict[str, Callable[[], object]] = {"api": FakeDaemonApi, "talk": FakeTalkApi, "mode": lambda: "auto"}
    return made[name]()
