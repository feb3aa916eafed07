"""Where the buses of peers were last, so that whoever starts while they are away still finds them when they return."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Final

import structlog
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from sublet.daemon.ports.peer_link import BusAddress
from sublet.disk.durable import write_whole
from sublet.disk.plain_file import read_plain

MAX_FILE_BYTES: Final = 256 << 10
"""More than the doors of as many peers as there may be."""

log = structlog.get_logger(__name__)


class _Door(BaseModel):
    model_config = ConfigDict(defer_build=True, frozen=True)

    port: Annotated[int, Field(gt=0, lt=65536)]
    wire: int = 1
    version: str = ""


class _Doors(RootModel[dict[str, _Door]]):
    """Doors by node id."""


class KnownDoors:
    """The doors that peers have told of; reads and writes block.

    Args:
        path: the file, which is made anew where it can't be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            kept = _Doors.model_validate_json(read_plain(path, MAX_FILE_BYTES)).root
        except (OSError, ValidationError):
            kept = {}
        self._doors = {node: BusAddress(door.port, door.wire, door.version) for node, door in kept.items()}

    def get(self, node_id: str) -> BusAddress | None:
        """Return where the bus of a daemon was last; None where that is not known."""
        return self._doors.get(node_id)

    def keep(self, doors: dict[str, BusAddress], peers: Collection[str]) -> None:
        """Keep what peers have told of just now, and forget who is no peer any more."""
        kept = {node: door for node, door in (self._doors | doors).items() if node in peers}
        if kept == self._doors:
            return
        self._doors = kept
        written = _Doors(
            {node: _Door(port=door.port, wire=door.wire, version=door.version) for node, door in kept.items()}
        )
        try:
            write_whole(self._path, written.model_dump_json().encode())
        except OSError as error:
            log.warning("where peers have their buses could not be remembered", reason=error.strerror)
