"""An executor decides how many names there are and how long: a manifest of them is kept once, and never copied."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.workspace.audit import manifest as manifests
from sublet.workspace.audit.manifest import ROOT, Record
from sublet.workspace.audit.shadow_git import DIRECTORY

NAMES = 3_000
LENGTH = 3_500
ALL_BYTES = NAMES * LENGTH
LITTLE = ALL_BYTES // 5


@pytest.fixture
def kept(tmp_path: Path) -> dict[bytes, Record]:
    """A manifest of long names, kept twice, the second time with one more."""
    made = {b"%06d" % n + b"y" * (LENGTH - 6): Record(DIRECTORY, "", None, 0o755) for n in range(NAMES)}
    made[ROOT] = Record(DIRECTORY, "", None)
    manifests.save(tmp_path, "0" * 64, made)
    manifests.save(tmp_path, "1" * 64, {**made, b"more": Record(DIRECTORY, "", None, 0o755)})
    return made


@pytest.fixture
def traced(kept: dict[bytes, Record]) -> Iterator[None]:
    """Count from here on."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_it_is_written_without_a_copy(tmp_path: Path, kept: dict[bytes, Record]) -> None:
    manifests.save(tmp_path, "2" * 64, kept)
    assert tracemalloc.get_traced_memory()[1] < LITTLE
    assert (tmp_path / ("2" * 64)).read_bytes() == (tmp_path / ("0" * 64)).read_bytes()


@pytest.mark.usefixtures("traced")
def test_it_is_read_once(tmp_path: Path, kept: dict[bytes, Record]) -> None:
    assert manifests.load(tmp_path, "0" * 64) == kept
    assert tracemalloc.get_traced_memory()[1] < ALL_BYTES + LITTLE


@pytest.mark.usefixtures("traced")
def test_what_is_the_same_in_both_is_not_kept(tmp_path: Path, kept: dict[bytes, Record]) -> None:
    found = manifests.load_differing(tmp_path, "0" * 64, "1" * 64)
    assert tracemalloc.get_traced_memory()[1] < LITTLE
    root = {ROOT: kept[ROOT]}
    assert found == (root, {**root, b"more": Record(DIRECTORY, "", None, 0o755)})


@pytest.mark.usefixtures("traced")
def test_its_directories_are_listed_one_by_one(kept: dict[bytes, Record]) -> None:
    assert sum(map(len, manifests.Listing(kept))) > ALL_BYTES
    assert tracemalloc.get_traced_memory()[1] < LITTLE
