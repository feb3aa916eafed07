"""Where the sockets between links and Zenoh are: always in a directory with a path that sockets can have."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from sublet.messaging.links import sockets
from sublet.messaging.links.sockets import MAX_SOCKET_PATH, private_directory, remove_directory

TOO_LONG = "x" * MAX_SOCKET_PATH


def test_a_wanted_directory_is_taken_where_its_path_is_short_and_plain(tmp_path: Path) -> None:
    made = private_directory(tmp_path / "s")
    assert made == tmp_path / "s"
    assert made.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", [TOO_LONG, "with#mark", "ünlich"])
@pytest.mark.parametrize("temporary", ["", TOO_LONG, "with#mark"])
def test_another_one_takes_its_place(
    tmp_path: Path, name: str, temporary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / temporary
    place.mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    made = private_directory(tmp_path / name / "s")
    try:
        assert sockets._fits(made)
        assert made.stat().st_mode & 0o777 == 0o700
        assert os.listdir(made) == []
    finally:
        remove_directory(made)


def test_where_none_fits_the_error_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / TOO_LONG
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setattr(sockets, "_SHORT", ())
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with pytest.raises(OSError, match="the path of a socket may have 100 characters at most"):
        private_directory(place / "s")
