"""An executor decides how many names there are and how long their paths: each name is kept once, and never copied."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sublet.workspace.audit import manifest as manifests
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.audit.comparing import ChangedDirectory, changes, patch_of
from sublet.workspace.audit.manifest import ROOT, Record
from sublet.workspace.audit.path_tree import PathTree
from sublet.workspace.audit.reporting import MAX_REPORT_BYTES, author_of
from sublet.workspace.audit.shadow_git import DIRECTORY
from support.views import default_rules

NAMES = 3_000
LENGTH = 3_500
ALL_BYTES = NAMES * LENGTH
LITTLE = ALL_BYTES * 2 // 5
PART = b"y" * 249

Paths = Callable[[int], bytes]


def in_one_directory(number: int) -> bytes:
    """Return one of many names in a directory with a long path."""
    return b"/".join([PART] * 14) + b"/%06d" % number


def in_many_directories(number: int) -> bytes:
    """Return a name in a directory of its own, which has a long path."""
    return b"/".join([PART] * 13) + b"/%06d/name" % number


def chained(number: int) -> bytes:
    """Return a directory at some depth of a chain of its own, as far as two bytes tell it apart."""
    return b"/".join([PART[:240] + b"%04d" % (number // 14)] * (1 + number % 14))


@pytest.fixture(params=[in_one_directory, in_many_directories, chained])
def kept(tmp_path: Path, request: pytest.FixtureRequest) -> PathTree[Record]:
    """A manifest of long paths, kept twice, the second time with one more."""
    record = Record(DIRECTORY, "", None, 0o755)
    made = PathTree((request.param(number), record) for number in range(NAMES))
    made[ROOT] = Record(DIRECTORY, "", None)
    manifests.save(tmp_path, "0" * 64, made)
    made[b"more"] = record
    manifests.save(tmp_path, "1" * 64, made)
    del made[b"more"]
    return made


@pytest.fixture
def traced(kept: PathTree[Record]) -> Iterator[None]:
    """Count from here on."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_it_is_written_without_a_copy(tmp_path: Path, kept: PathTree[Record]) -> None:
    manifests.save(tmp_path, "2" * 64, kept)
    assert tracemalloc.get_traced_memory()[1] < LITTLE
    assert (tmp_path / ("2" * 64)).read_bytes() == (tmp_path / ("0" * 64)).read_bytes()


@pytest.mark.usefixtures("traced")
def test_each_name_is_kept_once(tmp_path: Path, kept: PathTree[Record]) -> None:
    assert manifests.load(tmp_path, "0" * 64) == kept
    assert tracemalloc.get_traced_memory()[1] < LITTLE


@pytest.mark.usefixtures("traced")
def test_what_is_the_same_in_both_is_not_kept(tmp_path: Path, kept: PathTree[Record]) -> None:
    found = manifests.load_differing(tmp_path, "0" * 64, "1" * 64)
    assert tracemalloc.get_traced_memory()[1] < LITTLE
    assert found is not None
    root = {ROOT: kept[ROOT]}
    assert found[0] == root
    assert found[1] == {**root, b"more": Record(DIRECTORY, "", None, 0o755)}


@pytest.mark.usefixtures("traced")
def test_its_directories_are_listed_one_by_one(kept: PathTree[Record]) -> None:
    assert sum(map(len, manifests.Listing(kept))) > ALL_BYTES // 3
    assert tracemalloc.get_traced_memory()[1] < LITTLE


@pytest.mark.usefixtures("traced")
def test_what_differs_is_told_one_by_one(kept: PathTree[Record]) -> None:
    nothing: PathTree[Record] = PathTree(((ROOT, kept[ROOT]),))
    found = sum(isinstance(one, ChangedDirectory) for one in changes(nothing, kept, author_of((), overflow=True)))
    assert found == NAMES
    assert len(patch_of(nothing, kept, limit=100_000)) < 110_000
    assert tracemalloc.get_traced_memory()[1] < LITTLE


def test_a_report_lists_no_more_than_its_bytes(tmp_path: Path) -> None:
    (root := tmp_path / "root").mkdir()
    auditor = Auditor(tmp_path / "state")
    baseline = auditor.baseline(root, default_rules())
    above = root.joinpath(*["y" * 200] * 14)
    above.mkdir(parents=True)
    count = MAX_REPORT_BYTES // 2800
    for number in range(count):
        (above / f"{number}-directory").mkdir()
        (above / f"{number}-file").touch()
    found = auditor.result(baseline, root, default_rules(), (), overflow=True)
    assert found.truncated
    assert found.counts == {"added": count}
    assert found.directory_counts == {"added": count + 14}
    for listed in (found.files, found.directories):
        assert MAX_REPORT_BYTES // 2 < sum(len(one.path) for one in listed) <= MAX_REPORT_BYTES
