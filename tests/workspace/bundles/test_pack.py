"""A bundle is measured as git would unpack it, whatever git has made of it."""

from __future__ import annotations

import io
import random
import subprocess
from pathlib import Path

import pytest

from sublet.workspace.bundles.pack import MalformedBundle, measure, read_head

BRANCH = "refs/heads/sublet"


def git(at: Path, *arguments: str, given: bytes = b"") -> bytes:
    argv = ["git", "-c", "user.name=n", "-c", "user.email=e@localhost", *arguments]
    return subprocess.run(argv, cwd=at, input=given, capture_output=True, check=True).stdout


@pytest.fixture
def bundle(tmp_path: Path) -> bytes:
    """A bundle of two commits with differences of both kinds, an empty file and one that does not compress."""
    root = tmp_path / "made"
    root.mkdir()
    chance = random.Random(7)
    git(root, "init", "-q", "-b", "sublet")
    lines = [b"%d\n" % chance.getrandbits(60) for _ in range(2_000)]
    for number in range(2):
        (root / "text").write_bytes(b"".join(lines))
        (root / "empty").write_bytes(b"")
        (root / "random").write_bytes(chance.randbytes(100_000))
        for name in range(200):
            (root / f"f{name}").write_bytes(b"%d\n" % (name + number))
        git(root, "add", "-A")
        git(root, "commit", "-qm", str(number))
        lines[chance.randrange(2_000)] = b"changed\n"
    git(root, "repack", "-adfq", "--depth=50", "--window=50")
    git(root, "bundle", "create", "-q", "../made.bundle", BRANCH)
    return (tmp_path / "made.bundle").read_bytes()


def test_what_git_packs_is_measured(bundle: bytes, tmp_path: Path) -> None:
    file = io.BytesIO(bundle)
    head = read_head(file, BRANCH.encode())
    assert head.commit == git(tmp_path / "made", "rev-parse", BRANCH).decode().strip()
    assert head.needs == frozenset()
    extent = measure(file, head.pack, max_objects=10_000, max_bytes=1 << 30)
    listed = git(tmp_path / "made", "cat-file", "--batch-all-objects", "--batch-check=%(objectsize) %(deltabase)")
    sizes = [line.split() for line in listed.splitlines()]
    assert extent.objects == len(sizes)
    assert any(set(base) != {ord("0")} for _, base in sizes)
    whole = sum(int(size) for size, _ in sizes)
    assert whole <= extent.bytes <= 1.2 * whole  # differences count beside what they make


@pytest.mark.parametrize("bound", [{"max_objects": 100}, {"max_bytes": 10_000}])
def test_bounds_hold_for_what_git_packs(bundle: bytes, bound: dict[str, int]) -> None:
    file = io.BytesIO(bundle)
    head = read_head(file, BRANCH.encode())
    with pytest.raises(MalformedBundle, match="more than"):
        measure(file, head.pack, **({"max_objects": 10_000, "max_bytes": 1 << 30} | bound))


def test_a_bundle_that_is_cut_or_changed_anywhere_is_refused_or_measured_within_its_bounds(bundle: bytes) -> None:
    head = read_head(io.BytesIO(bundle), BRANCH.encode())
    chance = random.Random(11)
    for _ in range(100):
        at = chance.randrange(len(bundle))
        cut = bundle[:at]
        with pytest.raises(MalformedBundle):
            measure(io.BytesIO(cut), head.pack, max_objects=10_000, max_bytes=1 << 22)
        changed = bundle[:at] + bytes([bundle[at] ^ 1 << chance.randrange(8)]) + bundle[at + 1 :]
        try:
            extent = measure(io.BytesIO(changed), head.pack, max_objects=10_000, max_bytes=1 << 22)
        except MalformedBundle:
            continue
        assert extent.bytes <= 1 << 22
