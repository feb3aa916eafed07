"""Runs operations by name, as the declarations have them (ezagent 10.2).

Rules: arguments are checked by name before anything runs, and an operation that writes into a room is refused where the
room has switched its extension off. Weak: the arguments' types are those of the caller; each operation checks values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from sublet.messaging.declaring.declaration import Operation
from sublet.messaging.declaring.operating import OperationContext, OperationParts
from sublet.messaging.schema.fields import Fields
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId


@cache
def _names(run: Callable[..., object]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of an operation's arguments, and of those that have no default."""
    given = list(inspect.signature(run).parameters.values())[1:]  # without the context
    return frozenset(one.name for one in given), frozenset(one.name for one in given if one.default is one.empty)


def run_operation(
    operations: Mapping[str, Operation], parts: OperationParts, entity: EntityId, name: str, arguments: Fields
) -> Any:
    """Return what an operation answers; what it writes is durable after the engine's next ``commit``.

    Args:
        operations: all there are, by name.
        parts: what they use, on the engine's thread.
        entity: who asks, one of our own.
        name: such as ``message.send``.
        arguments: by name.

    Raises:
        SubletError: there is no such operation, an argument is missing or not known, or the operation refuses.
    """
    operation = operations.get(name)
    if operation is None:
        raise SubletError(
            LocalCode.NOT_FOUND, f"no operation is called {name}", "Its extension may not be part of this daemon."
        )
    checked(operation, arguments)
    context = OperationContext(parts, entity)
    if operation.extension is not None and operation.writes is not None:
        room_id = arguments.get("room_id")
        if isinstance(room_id, str):
            context.require_enabled(room_id, operation.extension)
    return operation.run(context, **arguments)


def checked(operation: Operation, arguments: Fields) -> None:
    """Refuse arguments that an operation does not take.

    Raises:
        SubletError: an argument is missing or not known.
    """
    names, needed = _names(operation.run)
    unknown, missing = arguments.keys() - names, needed - arguments.keys()
    if unknown or missing:
        wrong = [f"no argument is called {one}" for one in sorted(unknown)]
        wrong += [f"{one} is missing" for one in sorted(missing)]
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"{operation.id}: {', '.join(wrong)}", "See docs/messaging.md.")
