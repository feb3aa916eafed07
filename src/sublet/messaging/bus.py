"""The operations as coroutines with the names of ezagent 10.2: ``await bus.message.send(room_id=..., body=...)``.

Nothing here is written by hand: an extension that declares an index or an operation has it here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from sublet.messaging.declaring.registry import Registry
from sublet.messaging.watching.news import EventsFound
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import RoomId

STREAM_WAIT_SECONDS = 60.0
Run = Callable[[str, dict[str, Any]], Awaitable[Any]]
Stream = Callable[[int | None, RoomId | None], AsyncGenerator[dict[str, Any], None]]


class Bus:
    """Namespaces of operations, as one entity.

    Args:
        registry: which operations there are.
        run: runs one by its name.
        stream: yields events after a cursor.
    """

    def __init__(self, registry: Registry, run: Run, stream: Stream) -> None:
        self._registry = registry
        self._run = run
        self.events = _Events(stream)

    def __getattr__(self, name: str) -> Any:
        if name in self._registry.operations:
            return _Operation(name, self._run)
        if any(operation.startswith(f"{name}.") for operation in self._registry.operations):
            return _Namespace(name, self._registry, self._run)
        raise AttributeError(f"no operation begins with {name}")

    def __dir__(self) -> list[str]:
        return sorted({"events", *(operation.partition(".")[0] for operation in self._registry.operations)})


class _Events:
    """What has happened, as an async iterator: the one operation that never ends."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def stream(self, since: int | None = None, room_id: RoomId | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """Yield events that the entity may see, each once and in order, as soon as it is durable.

        Args:
            since: a cursor, such as ``cursor`` of the last event that was taken; None for those from now on.
            room_id: of one room only.

        Raises:
            SubletError: ``CONFLICT``: events after that cursor are not kept any more.
        """
        return self._stream(since, room_id)


async def stream(
    watch: Callable[[int, float, RoomId | None], Awaitable[EventsFound]],
    last: Callable[[], Awaitable[int]],
    since: int | None,
    room_id: RoomId | None,
) -> AsyncGenerator[dict[str, Any], None]:
    """See ``events.stream``.

    Args:
        watch: returns the events after a cursor, and waits for one where there is none.
        last: returns the cursor of the last event.
        since: a cursor; None for events from now on.
        room_id: of one room only.
    """
    cursor = await last() if since is None else since
    while True:
        seen = await watch(cursor, STREAM_WAIT_SECONDS, room_id)
        if seen["missed"]:
            raise SubletError(
                LocalCode.CONFLICT,
                "events after this cursor are not kept any more",
                "Read the rooms, then go on from now.",
            )
        cursor = seen["cursor"]
        for event in seen["events"]:
            yield event


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
