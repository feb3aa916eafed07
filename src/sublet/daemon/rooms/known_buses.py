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
"""More than is known of the buses of as many peers as there may be."""

log = structlog.get_logger(__name__)


class _Bus(BaseModel):
    model_config = ConfigDict(defer_build=True, frozen=True)

    port: Annotated[int, Field(gt=0, lt=65536)]
    wire: int = 1
    version: str = ""


class _Buses(RootModel[dict[str, _Bus]]):
    """Buses by node id."""


class KnownBuses:
    """Where the buses of peers are, as these have told; reads and writes block.

    Args:
        path: the file, which is made anew where it can't be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            kept = _Buses.model_validate_json(read_plain(path, MAX_FILE_BYTES)).root
        except (OSError, ValidationError):
            kept = {}
        self._buses = {node: BusAddress(bus.port, bus.wire, bus.version) for node, bus in kept.items()}

    def get(self, node_id: str) -> BusAddress | None:
        """Return where the bus of a daemon was last; None where that is not known."""
        return self._buses.get(node_id)

    def keep(self, buses: dict[str, BusAddress], peers: Collection[str]) -> None:
        """Keep what peers have told of just now, and forget who is no peer any more."""
        kept = {node: bus for node, bus in (self._buses | buses).items() if node in peers}
        if kept == self._buses:
            return
        self._buses = kept
        written = _Buses({node: _Bus(port=bus.port, wire=bus.wire, version=bus.version) for node, bus in kept.items()})
        try:
            write_whole(self._path, written.model_dump_json().encode())
        except OSError as error:
            log.warning("where peers have their buses could not be remembered", reason=error.strerror)
