"""Compressed bitmaps of a split index: which entries of the shared part are deleted or replaced."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from sublet.workspace.git.split_index import KnownEntry, _set_bits, merged

WORD = (1 << 64) - 1


def marker(bit: int, running: int, literals: int) -> bytes:
    return (bit | running << 1 | literals << 33).to_bytes(8, "big")


def compressed(bits: set[int], count: int, chance: random.Random) -> bytes:
    """Return the bitmap as git writes it: runs of equal words, then words as they are; split at random."""
    words = [sum(1 << n for n in range(64) if at * 64 + n in bits) for at in range(-(-count // 64))]
    raw, at = b"", 0
    while at < len(words):
        bit, running = int(words[at] == WORD), 0
        while at + running < len(words) and words[at + running] == (WORD if bit else 0) and chance.random() < 0.9:
            running += 1
        at += running
        literals = chance.randint(0 if running else 1, min(3, len(words) - at)) if at < len(words) else 0
        raw += marker(bit, running, literals) + b"".join(w.to_bytes(8, "big") for w in words[at : at + literals])
        at += literals
    return raw


@pytest.mark.parametrize("seed", range(40))
def test_the_bits_are_those_that_were_set(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.choice([1, 63, 64, 65, 500, 2_000])
    bits: set[int] = set()
    for start in range(0, count, 64):
        share = chance.choice([0, 0, 1, chance.random()])
        bits |= {n for n in range(start, min(start + 64, count)) if chance.random() < share}
    found = list(_set_bits(compressed(bits, count, chance), count))
    assert found == sorted(bits)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        marker(1, 0xFFFFFFFF, 0),
        marker(1, 0xFFFFFFFF, (1 << 31) - 1),
        marker(0, 0, (1 << 31) - 1),
        marker(0, 0, (1 << 31) - 1) + b"\xff" * 8,
        marker(0, 0, 1),
        marker(0, 0, 0) * 1_000,
        marker(0, 0, 1) + b"\xff" * 3,
    ],
)
def test_what_no_git_writes_ends_within_the_entries_that_there_are(raw: bytes) -> None:
    found = list(_set_bits(raw, 100))
    assert len(found) == len(set(found)) <= 100
    assert all(0 <= bit < 100 for bit in found)


def entry(path: bytes) -> KnownEntry:
    return KnownEntry(path, b"blob", unseen=False)


def bitmap(raw: bytes) -> bytes:
    return (64).to_bytes(4, "big") + (len(raw) // 8).to_bytes(4, "big") + raw + bytes(4)


def test_deleted_entries_go_and_replaced_ones_keep_their_path() -> None:
    shared = [entry(b"%d" % number) for number in range(70)]
    deleted = bitmap(marker(0, 0, 2) + (1 << 63).to_bytes(8, "big") + (1 << 1).to_bytes(8, "big"))
    replaced = bitmap(marker(0, 1, 1) + (1 << 2).to_bytes(8, "big"))
    new = KnownEntry(b"", b"other", unseen=False)
    found = merged(shared, [new, entry(b"own")], deleted + replaced)
    assert {one.path for one in found} == {b"own", *(b"%d" % n for n in range(70) if n not in (63, 65))}
    assert next(one for one in found if one.path == b"66").blob == b"other"
    for own in ([], [entry(b"named")]):
        with pytest.raises(PermissionError):
            merged(shared, own, deleted + replaced)
    for cut in range(4, len(deleted + replaced)):
        with pytest.raises(PermissionError):
            merged(shared, [new], (deleted + replaced)[:cut])


def test_an_index_that_git_has_split_is_read_as_git_lists_it(tmp_path: Path) -> None:
    from sublet.workspace.git.index import checked_index

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True).stdout

    git("init", "-q")
    git("config", "splitIndex.maxPercentChange", "100")
    for number in range(300):
        (tmp_path / f".envrc{number:03}").write_text("x")
    git("add", "-A")
    git("update-index", "--split-index")
    for number in [*range(10, 90), 64, 128, 200, 299]:
        (tmp_path / f".envrc{number:03}").unlink(missing_ok=True)
    for number in range(100, 120):
        (tmp_path / f".envrc{number:03}").write_text("y")
    git("add", "-A")
    before = (tmp_path / ".git/index").read_bytes()

    def shared(name: str) -> bytes:
        return (tmp_path / ".git" / f"sharedindex.{name}").read_bytes()

    listed = git("ls-files", "-s", "-z")
    git("update-index", "--no-split-index")
    whole = (tmp_path / ".git/index").read_bytes()
    # All names are guarded: only the entries of the lender's own index, exactly as they are, are taken.
    checked_index(whole, 20, before, shared, lambda _: True)
    assert listed.count(b"\0") == 300 - len({*range(10, 90), 128, 200, 299})
    git("update-index", "--force-remove", ".envrc000")
    git("update-index", "--add", "--cacheinfo", f"100644,{'1' * 40},.envrc050")
    with pytest.raises(PermissionError):
        checked_index((tmp_path / ".git/index").read_bytes(), 20, before, shared, lambda _: True)
