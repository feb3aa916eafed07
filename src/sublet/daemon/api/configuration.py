"""Operations on the configuration: what holds, and where it comes from."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, JsonValue

from sublet.daemon.api.base import View
from sublet.daemon.api.operation import Asks, Nothing, Operation
from sublet.policy.decision import Action


class Origin(StrEnum):
    """Where a value comes from, what counts most last."""

    DEFAULT = "default"
    DERIVED = "derived"
    FILE = "file"
    OPTION = "option"
    ENVIRONMENT = "environment"


class ConfigEntry(View):
    """A value that holds. ``source`` is the option, file, variable or other value that it comes from.

    ``in_force`` is told by the command line, which asks the running daemon for it.
    """

    name: str
    value: JsonValue
    origin: Origin
    source: str | None
    in_force: str | None = Field(default=None, description="Where the daemon listens, where that is not the value")


class ConfigView(View):
    """The configuration of a daemon, or the one that it would begin with.

    ``stale`` tells that the file says something else than when the daemon began, ``problem`` why it can't be read now.
    """

    file: str
    file_exists: bool
    running: bool
    stale: bool
    problem: str | None
    values: list[ConfigEntry]


SHOW_CONFIG = Operation(
    "config.show",
    "GET",
    "/v1/config",
    Nothing,
    ConfigView,
    asks=Asks(Action.DAEMON_CONTROL, "config"),
    summary="Return every value that holds, and where it comes from, without secrets.",
)
