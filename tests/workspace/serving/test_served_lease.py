"""One lease while it is served: it holds until its deadline or its end, and remembers no more than its bounds."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.workspace.export import WORKSPACE, ExportLimits, LentDirectory
from sublet.workspace.serving import served_lease
from sublet.workspace.serving.lease_memory import LeaseMemory, recall
from sublet.workspace.serving.served_lease import OfPeer, ServedLease
from support.sftp_client import NO_ATTRIBUTES, CoreClient, export, string
from support.views import default_rules

KEY = asyncssh.generate_private_key("ssh-ed25519")
WRITE = 2 | 8  # WRITE and CREAT
Made = Callable[..., ServedLease]


class Client:
    """A connection that notes that it was cut."""

    def __init__(self) -> None:
        self.severed = 0

    def sever(self) -> None:
        self.severed += 1


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "lent"
    place.mkdir()
    return place


@pytest.fixture
def made(tmp_path: Path, place: Path) -> Iterator[Made]:
    """Make leases of ``place``, which end with the test."""
    leases: list[ServedLease] = []
    with ThreadPoolExecutor(1) as threads:

        def make(of_peer: OfPeer | None = None, **changes: Any) -> ServedLease:
            leases.append(ServedLease(export(place, KEY, **changes), threads, tmp_path, of_peer))
            return leases[-1]

        yield make
        for lease in leases:
            lease.close()


def write(lease: ServedLease, *names: str) -> list[int | None]:
    """Make files by an SFTP session of the lease, and return the codes of refusals; None where it was made."""
    client = CoreClient(lease.new_session())
    answers = [client.open(f"/{WORKSPACE}/{name}".encode(), WRITE) for name in names]
    return [answer.status if answer.kind == 101 else None for answer in answers]


def test_a_lease_admits_its_key_until_its_deadline_and_its_end(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = made(seconds=60.0)
    assert lease.admits(KEY)
    assert not lease.admits(asyncssh.generate_private_key("ssh-ed25519"))
    monkeypatch.setattr("sublet.workspace.serving.served_lease.time.monotonic", lambda: lease.deadline)
    assert not lease.is_live()
    assert not lease.admits(KEY)
    monkeypatch.undo()
    assert lease.is_live()
    lease.close()
    assert not lease.admits(KEY)


def test_the_end_of_a_lease_is_that_of_its_connections_and_sessions(made: Made, place: Path) -> None:
    (place / "file").write_text("x")
    path = string(f"/{WORKSPACE}/file".encode())
    lease, clients = made(), [Client(), Client()]
    for client in clients:
        lease.join(client)
    session = CoreClient(lease.new_session())
    assert session.ask(17, path).kind == 105
    lease.close()
    lease.close()
    assert [client.severed for client in clients] == [1, 1]
    assert session.ask(17, path).status is not None
    assert lease.connections == set()


def test_connections_are_bounded_and_the_first_and_the_last_are_told(made: Made) -> None:
    told: list[bool] = []
    lease = made(limits=ExportLimits(max_connections=2), on_connected=told.append)
    first, second = Client(), Client()
    lease.join(first)
    assert lease.has_room()
    lease.join(second)
    assert not lease.has_room()
    assert not lease.admits(KEY)
    lease.leave(first)
    lease.leave(first)
    lease.leave(second)
    assert told == [True, False]
    assert lease.usage.connections == 2


def test_what_is_changed_is_remembered_up_to_a_bound(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_lease, "MAX_TOUCHED", 2)
    lease = made()
    assert write(lease, "a", "b", "b") == [None, None, None]
    assert (lease.usage.touched, lease.usage.touched_overflow) == ({WORKSPACE: {b"a", b"b"}}, False)
    assert write(lease, "c") == [None]
    assert (lease.usage.touched, lease.usage.touched_overflow) == ({WORKSPACE: {b"a", b"b"}}, True)


def test_what_is_remembered_is_bounded_in_bytes_as_well(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_lease, "MAX_NOTED_BYTES", 200)
    lease = made()
    write(lease, "a" * 100, "b" * 100)
    assert lease.usage.touched == {WORKSPACE: {b"a" * 100}}
    assert lease.usage.touched_overflow


def test_refused_changes_are_told_once_each_and_counted_beyond_a_bound(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_lease, "MAX_DENIED", 1)
    told: list[str] = []
    lease = made(rules=default_rules(locked=["*.lock"]), on_denied=told.append)
    assert None not in write(lease, "a.lock", "a.lock", "b\x1b.lock")
    assert [line.partition(":")[0] for line in told] == ["a.lock"]
    assert (lease.usage.denied, lease.usage.denied_count) == (told, 2)


def test_a_lease_for_reading_makes_nothing(made: Made, place: Path) -> None:
    assert None not in write(made(access_mode="ro"), "a")
    assert list(place.iterdir()) == []


def test_a_quota_that_is_met_is_told(made: Made) -> None:
    met: list[object] = []
    lease = made(limits=ExportLimits(max_files=1), on_quota_met=met.append)
    assert write(lease, "a")[0] is None
    assert write(lease, "b")[0] is not None
    assert met == [lease.usage.quota.met]
    assert lease.usage.quota.files == 1


def test_leases_of_one_peer_share_what_may_wait(made: Made) -> None:
    of_peer = OfPeer()
    first, second = made(of_peer), made(of_peer, lease_id="dlg_" + "1" * 32)
    whole = first.waiting.free
    assert first.waiting.take(whole)
    assert second.waiting.take(whole)
    assert first.room is second.room
    left = of_peer.waiting.free
    first.close()
    assert of_peer.waiting.free == left + whole, "what waited goes with its lease"


def test_a_lease_goes_on_where_an_earlier_process_ended(made: Made, place: Path, tmp_path: Path) -> None:
    memory = LeaseMemory(tmp_path / "memory")
    first = made(memory=memory)
    write(first, "a")
    memory.count(first.usage)
    first.close()
    memory.close()
    before = recall(tmp_path / "memory")
    second = made(before=before, memory=None)
    write(second, "b")
    assert second.usage.touched == {WORKSPACE: {b"a", b"b"}}
    assert second.usage.quota.files == 2
    second.close()
    place.rename(tmp_path / "moved")
    place.mkdir()
    with pytest.raises(SubletError) as no:
        made(before=before)
    assert (no.value.code, "replaced since it was lent" in no.value.message) == (ErrorCode.WORKSPACE_INVALID, True)


def test_what_can_not_be_served_is_refused_and_leaves_no_descriptor(made: Made, place: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    here = LentDirectory("here", place, "rw", default_rules())
    before = len(os.listdir("/proc/self/fd"))
    for path, code in ((tmp_path / "gone", ErrorCode.WORKSPACE_NOT_FOUND), (tmp_path / "file", None)):
        other = LentDirectory("other", path, "rw", default_rules())
        with pytest.raises(SubletError) as no:
            made(resources=(here, other))
        assert no.value.code == (code or ErrorCode.WORKSPACE_INVALID)
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(SubletError) as bad:
        ServedLease(dataclasses.replace(export(place, KEY), public_key="no key"), None, tmp_path)  # type: ignore[arg-type]
    assert bad.value.code is LocalCode.INVALID_ARGUMENT


def test_an_attribute_is_no_reason_to_be_remembered_twice(made: Made) -> None:
    lease = made()
    client = CoreClient(lease.new_session())
    assert client.open(f"/{WORKSPACE}/a".encode(), WRITE).kind == 102
    assert client.ask(9, string(f"/{WORKSPACE}/a".encode()) + NO_ATTRIBUTES).status == 0
    assert lease.usage.touched == {WORKSPACE: {b"a"}}
