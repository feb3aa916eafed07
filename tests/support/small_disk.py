"""A file system that is full soon."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, kibibytes: int) -> Iterator[Path]:
    """Mount a file system of that size, with one file in it."""
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mounting, check=False, capture_output=True).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        (place / "kept").write_text("kept\n")
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
