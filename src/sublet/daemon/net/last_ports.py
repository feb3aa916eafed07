"""Which ports the daemon listened on last, so that peers and leases find it again after a restart (DESIGN 3, 4.10)."""

from __future__ import annotations

from pathlib import Path

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from sublet.disk.durable import write_whole
from sublet.disk.plain_file import read_plain

MAX_FILE_BYTES = 4096

log = structlog.get_logger(__name__)


class LastPorts(BaseModel):
    """The ports of the last process; None where none is known."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    a2a: int | None = None
    sftp: int | None = None
    web: int | None = None
    bus: int | None = None


def read_ports(path: Path) -> LastPorts:
    """Return what is remembered; what can't be read is nothing, and harms nobody."""
    try:
        ports = LastPorts.model_validate_json(read_plain(path, MAX_FILE_BYTES))
    except (OSError, ValidationError):
        return LastPorts()
    known = (ports.a2a, ports.sftp, ports.web, ports.bus)
    return ports if all(port is None or 0 < port < 65536 for port in known) else LastPorts()


def write_ports(path: Path, ports: LastPorts) -> None:
    """Remember ``ports`` for the next process."""
    try:
        write_whole(path, ports.model_dump_json().encode())
    except OSError as error:
        log.warning("the ports could not be remembered", reason=error.strerror)
