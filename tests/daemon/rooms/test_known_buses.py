"""What is remembered of the buses of peers, and what comes of a file that is spoilt."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.daemon.ports.peer_link import BusAddress
from sublet.daemon.rooms.known_buses import MAX_FILE_BYTES, KnownBuses

ANN, BOB = BusAddress(7447), BusAddress(8001)


def test_buses_of_peers_outlive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "buses.json"
    buses = KnownBuses(path)
    buses.keep({"ann": ANN}, {"ann", "bob"})
    buses.keep({"bob": BOB}, {"ann", "bob"})
    again = KnownBuses(path)
    assert (again.get("ann"), again.get("bob"), again.get("carol")) == (ANN, BOB, None)
    again.keep({}, {"bob"})
    assert (KnownBuses(path).get("ann"), KnownBuses(path).get("bob")) == (None, BOB)


@pytest.mark.parametrize(
    "spoilt",
    [b"", b"[]", b'{"ann": {"port": 0, "tls": false}}', b'{"ann": {"wire": 1}}', b" " * (MAX_FILE_BYTES + 1)],
)
def test_a_spoilt_file_is_nothing(tmp_path: Path, spoilt: bytes) -> None:
    path = tmp_path / "buses.json"
    path.write_bytes(spoilt)
    buses = KnownBuses(path)
    assert buses.get("ann") is None
    buses.keep({"ann": ANN}, {"ann"})
    assert KnownBuses(path).get("ann") == ANN


def test_what_cannot_be_written_harms_nobody(tmp_path: Path) -> None:
    buses = KnownBuses(tmp_path / "missing" / "buses.json")
    buses.keep({"ann": ANN}, {"ann"})
    assert buses.get("ann") == ANN
