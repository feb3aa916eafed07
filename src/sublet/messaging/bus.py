"""The operations as coroutines with the names of ezagent 10.2: ``await bus.message.send(room_id=..., body=...)``.

Nothing here is written by hand: an extension that declares an index or an operation has it here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from sublet.messaging.engine.registry import Registry

Run = Callable[[str, dict[str, Any]], Awaitable[Any]]


class Bus:
    """Namespaces of operations, as one entity.

    Args:
        registry: which operations there are.
        run: runs one by its name.
    """

    def __init__(self, registry: Registry, run: Run) -> None:
        self._registry = registry
        self._run = run

    def __getattr__(self, name: str) -> Any:
        if name in self._registry.operations:
            return _Operation(name, self._run)
        if any(operation.startswith(f"{name}.") for operation in self._registry.operations):
            return _Namespace(name, self._registry, self._run)
        raise AttributeError(f"no operation begins with {name}")

    def __dir__(self) -> list[str]:
        return sorted({operation.partition(".")[0] for operation in self._registry.operations})


class _Namespace:
    def __init__(self, name: str, registry: Registry, run: Run) -> None:
        self._name = name
        self._registry = registry
        self._run = run

    def __getattr__(self, name: str) -> _Operation:
        full = f"{self._name}.{name}"
        if full not in self._registry.operations:
            raise AttributeError(f"no operation is called {full}")
        return _Operation(full, self._run)

    def __dir__(self) -> list[str]:
        head = f"{self._name}."
        return sorted(name.removeprefix(head) for name in self._registry.operations if name.startswith(head))


class _Operation:
    def __init__(self, name: str, run: Run) -> None:
        self._name = name
        self._run = run

    async def __call__(self, **arguments: Any) -> Any:
        return await self._run(self._name, arguments)
