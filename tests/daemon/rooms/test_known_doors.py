"""What is remembered of the buses of peers, and what comes of a file that is spoilt."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.daemon.ports.peer_link import BusAddress
from sublet.daemon.rooms.known_doors import MAX_FILE_BYTES, KnownDoors

ANN, BOB = BusAddress(7447), BusAddress(8001)


def test_doors_of_peers_outlive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "doors.json"
    doors = KnownDoors(path)
    doors.keep({"ann": ANN}, {"ann", "bob"})
    doors.keep({"bob": BOB}, {"ann", "bob"})
    again = KnownDoors(path)
    assert (again.get("ann"), again.get("bob"), again.get("carol")) == (ANN, BOB, None)
    again.keep({}, {"bob"})
    assert (KnownDoors(path).get("ann"), KnownDoors(path).get("bob")) == (None, BOB)


@pytest.mark.parametrize(
    "spoilt",
    [b"", b"[]", b'{"ann": {"port": 0, "tls": false}}', b'{"ann": {"wire": 1}}', b" " * (MAX_FILE_BYTES + 1)],
)
def test_a_spoilt_file_is_nothing(tmp_path: Path, spoilt: bytes) -> None:
    path = tmp_path / "doors.json"
    path.write_bytes(spoilt)
    doors = KnownDoors(path)
    assert doors.get("ann") is None
    doors.keep({"ann": ANN}, {"ann"})
    assert KnownDoors(path).get("ann") == ANN


def test_what_cannot_be_written_harms_nobody(tmp_path: Path) -> None:
    doors = KnownDoors(tmp_path / "missing" / "doors.json")
    doors.keep({"ann": ANN}, {"ann"})
    assert doors.get("ann") == ANN
