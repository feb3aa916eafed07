"""Runs tests that throw a failure at a part of the product as a probe, with what they ask for."""

from __future__ import annotations

import importlib
import inspect
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sublet.daemon.config.paths import resolve_home
from support.fake_daemon_api import FakeDaemonApi
from support.fake_rooms import FakeRooms

Test = Callable[..., Awaitable[None] | None]


def throwing(*tests: Test) -> Callable[[], Awaitable[None]]:
    """Return what runs each of ``tests`` in turn; arguments of parametrized ones are given by ``functools.partial``."""
    return partial(_run_all, tests)


async def _run_all(tests: tuple[Test, ...]) -> None:
    for test in tests:
        async with AsyncExitStack() as stack:
            await _called(test, _Fixtures(test, stack))


async def _called(call: Callable[..., Any], fixtures: _Fixtures) -> Any:
    wanted = inspect.signature(call).parameters
    given = {name: await fixtures.get(name) for name, one in wanted.items() if one.default is one.empty}
    running = call(**given)
    return await running if inspect.isawaitable(running) else running


class _Fixtures:
    """What one test asks for, each made once: by the fixtures beside it, or by what is usual."""

    def __init__(self, test: Test, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._made: dict[str, Any] = {}
        function: Any = test
        while isinstance(function, partial):
            function = function.func
        name = function.__module__
        self._modules = [sys.modules[name]]
        package, _, _ = name.rpartition(".")
        if package:
            with suppress(ModuleNotFoundError):
                self._modules.append(importlib.import_module(f"{package}.conftest"))

    async def get(self, name: str) -> Any:
        """Return what is called ``name``."""
        if name not in self._made:
            self._made[name] = await self._make(name)
        return self._made[name]

    async def _make(self, name: str) -> Any:
        for module in self._modules:
            fixture: Any = getattr(module, name, None)
            if type(fixture).__name__ == "FixtureFunctionDefinition":
                return await self._entered(inspect.unwrap(fixture))
        if name == "monkeypatch":
            return self._stack.enter_context(pytest.MonkeyPatch.context())
        if name in ("tmp_path", "home"):
            root = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="p-"))
            return Path(root) if name == "tmp_path" else resolve_home({"SUBLET_HOME": root})
        made: dict[str, Callable[[], object]] = {"api": FakeDaemonApi, "talk": FakeRooms, "mode": lambda: "auto"}
        return made[name]()

    async def _entered(self, make: Callable[..., Any]) -> Any:
        if inspect.isasyncgenfunction(make):
            return await self._stack.enter_async_context(await _called(asynccontextmanager(make), self))
        if inspect.isgeneratorfunction(make):
            return self._stack.enter_context(await _called(contextmanager(make), self))
        return await _called(make, self)
