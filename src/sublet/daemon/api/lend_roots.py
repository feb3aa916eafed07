"""Operations on lend roots: the directories below which MCP hosts may lend."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sublet.daemon.api.base import Request
from sublet.daemon.api.operation import Asks, Nothing, Operation
from sublet.policy.decision import Action


class LendRoot(Request):
    """A directory of this machine."""

    path: Annotated[str, Field(min_length=1, max_length=4096)]


_PATH = "/v1/lend-roots"
_MANAGES = Asks(Action.LEND_ROOT_MANAGE, "{path}", ("path",))

LIST_LEND_ROOTS = Operation(
    "lend_roots.list",
    "GET",
    _PATH,
    Nothing,
    list[str],
    asks=Asks(Action.LEND_ROOT_MANAGE),
    summary="Return the directories below which MCP hosts may lend.",
)
ADD_LEND_ROOT = Operation(
    "lend_roots.add",
    "POST",
    _PATH,
    LendRoot,
    list[str],
    asks=_MANAGES,
    summary="Allow MCP hosts to lend below a directory, if the caller may lend it, and return all of them.",
    status=201,
)
REMOVE_LEND_ROOT = Operation(
    "lend_roots.remove",
    "DELETE",
    _PATH,
    LendRoot,
    list[str],
    asks=_MANAGES,
    summary="Take a directory off the list, and return those that are left.",
)
