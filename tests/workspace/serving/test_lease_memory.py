"""What a lease did is known to the next process, or known to be unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.workspace.export import LeaseUsage
from sublet.workspace.quota import QuotaMet
from sublet.workspace.serving import lease_memory
from sublet.workspace.serving.lease_memory import LeaseMemory, recall


def used() -> LeaseUsage:
    usage = LeaseUsage(bytes_read=1, bytes_written=2, operations=3)
    usage.quota.bytes, usage.quota.files = -4, 5
    return usage


def test_all_of_it_is_recalled_and_gone_on_with(tmp_path: Path) -> None:
    file = tmp_path / "leases" / "dlg_1"
    first = LeaseMemory(file)
    first.root("workspace", (7, 8))
    assert first.touch("workspace", b"a\nb \xff/c")
    first.count(used())
    # Not closed: its process was killed. The next one goes on in the same file.
    second = LeaseMemory(file)
    assert second.touch("docs", b"d")
    second.close()
    second.close()
    found = recall(file)
    assert found.touched == {"workspace": {b"a\nb \xff/c"}, "docs": {b"d"}}
    assert found.roots == {"workspace": (7, 8)}
    assert (found.bytes_read, found.bytes_written, found.operations) == (1, 2, 3)
    assert (found.quota.bytes, found.quota.files) == (-4, 5)
    assert not found.touched_overflow
    assert file.stat().st_mode & 0o777 == 0o600
    first.close()


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_an_entry_that_was_cut_short_makes_it_incomplete(tmp_path: Path, cut: int) -> None:
    memory = LeaseMemory(tmp_path / "one")
    memory.touch("workspace", b"whole")
    memory.touch("workspace", b"cut")
    memory.count(used())
    memory.close()
    raw = (tmp_path / "one").read_bytes()
    (tmp_path / "one").write_bytes(raw[:-cut])
    found = recall(tmp_path / "one")
    assert found.touched_overflow
    assert b"whole" in found.touched["workspace"]


def test_what_is_not_there_or_broken_is_incomplete(tmp_path: Path) -> None:
    assert recall(tmp_path / "none").touched_overflow
    (tmp_path / "odd").write_bytes(b"R\0")
    assert recall(tmp_path / "odd").operations == 0


def test_too_much_is_said_to_be_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_memory, "MAX_MEMORY_BYTES", 100)
    memory = LeaseMemory(tmp_path / "one")
    taken = [memory.touch("workspace", b"name%d" % number) for number in range(10)]
    assert True in taken
    assert False in taken
    memory.close()


def test_an_overflow_is_remembered(tmp_path: Path) -> None:
    memory = LeaseMemory(tmp_path / "one")
    memory.count(used())
    memory.overflow()
    memory.close()
    assert recall(tmp_path / "one").touched_overflow


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to(tmp_path / "elsewhere")
    memory = LeaseMemory(tmp_path / "one")
    assert not memory.touch("workspace", b"a")
    memory.count(used())
    assert not (tmp_path / "elsewhere").exists()


def test_a_quota_that_was_met_is_remembered(tmp_path: Path) -> None:
    memory = LeaseMemory(tmp_path / "one")
    memory.quota_met(QuotaMet("max_files", 3))
    memory.close()
    assert recall(tmp_path / "one").quota.met == QuotaMet("max_files", 3)
    (tmp_path / "two").write_bytes((tmp_path / "one").read_bytes().replace(b"max_files", b"max_wives"))
    assert recall(tmp_path / "two").quota.met is None


def test_what_came_back_is_known_and_forgotten_where_it_begins_to_come_again(tmp_path: Path) -> None:
    memory = LeaseMemory(tmp_path / "one")
    assert not recall(tmp_path / "one").returned
    memory.returning()
    memory.returned(["a: not\0here", "b: \udcff"], 3)
    found = recall(tmp_path / "one")
    assert (found.returned, found.refused, found.refused_count) == (True, ["a: not?here", "b: ?"], 3)
    memory.returning()
    found = recall(tmp_path / "one")
    assert (found.returned, found.refused, found.refused_count) == (False, [], 0)
    memory.returned([], 0)
    memory.close()
    assert recall(tmp_path / "one").returned
    assert not recall(tmp_path / "one").touched_overflow


def test_what_was_refused_is_remembered_with_how_often(tmp_path: Path) -> None:
    memory = LeaseMemory(tmp_path / "one")
    memory.denied(".envrc: your tools run it")
    memory.denied("odd\0name: hidden")
    usage = used()
    usage.denied_count = 7
    memory.count(usage)
    size = (tmp_path / "one").stat().st_size
    memory.count(usage)
    assert (tmp_path / "one").stat().st_size == size, "what has not changed is not noted again"
    memory.close()
    found = recall(tmp_path / "one")
    assert found.denied == [".envrc: your tools run it", "odd?name: hidden"]
    assert found.denied_count == 7
    assert not found.touched_overflow
