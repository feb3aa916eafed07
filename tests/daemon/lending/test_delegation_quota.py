"""A lease whose quota is met, on the delegator's side: who is told what, and how it ends whatever the peer does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from sublet.daemon.lending import going_along
from sublet.policy.limits import AdmissionLimits
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from support.lender import Lender, lender
from support.scripted_link import EXECUTOR_KEY
from support.sftp_client import Lender as Leased
from support.sftp_client import RawChannel, open_channel, string

pytestmark = pytest.mark.anyio

WRITE, CREAT, READ = 2, 8, 1


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Lender]:
    async with lender(tmp_path) as side:
        yield side


async def write(channel: RawChannel, name: bytes, size: int) -> int | None:
    """Write a file and return the status of it."""
    made = await channel.open(b"/workspace/" + name, WRITE | CREAT)
    return (await channel.ask(6, string(made.handle) + b"\0" * 8 + string(b"x" * size))).status


async def meet_quota(side: Lender, delegation_id: str) -> dict[str, object]:
    """Write as much as may be, then more, and return what the view says of the lease then.

    The executor obeys only after that, as the end of its work cuts the channel.
    """
    side.link.obeys = False
    async with Leased(side.data_plane, EXECUTOR_KEY, delegation_id).connect() as connection:
        channel = await open_channel(connection)
        assert await write(channel, b"fits", 100) == 0
        assert await write(channel, b"beyond", 1) == 15
        told = await channel.open(b"/meta/lease.json", READ)
        answer = await channel.ask(5, string(told.handle) + b"\0" * 8 + b"\0\1\0\0")
        found = json.loads(answer.data)
        assert isinstance(found, dict)
        while not side.link.failed:
            await asyncio.sleep(0)
        side.link.say(delegation_id, *side.link.failed)
        return found


async def test_the_peer_is_told_and_the_end_names_the_bound(side: Lender) -> None:
    found = await side.running(max_total_bytes=100)
    lease = await meet_quota(side, found)
    view = await side.settled(found)

    [error] = side.link.failed
    assert (error.code, error.delegation_id) == (ErrorCode.TASK_FAILED, found)
    assert error.sublet.grace_seconds == going_along.QUOTA_GRACE_SECONDS
    assert "100 bytes to the directory (max_total_bytes)" in error.message
    assert view.error is not None
    assert (view.error.code, view.error.message, view.error.from_peer) == ("TASK_FAILED", error.message, False)
    assert (lease["max_total_bytes"], lease["quota_exceeded"]) == (100, error.message)
    assert (view.usage.bytes_added, view.usage.files_added) == (100, 2)
    assert view.quota is not None
    assert view.quota.max_total_bytes == 100
    assert sorted(path.name for path in side.project.iterdir()) == ["beyond", "fits", "hello.txt"]
    assert (side.project / "beyond").stat().st_size == 0


async def test_done_after_refused_writes_is_a_failure_that_keeps_what_the_agent_said(side: Lender) -> None:
    side.link.obeys = False
    found = await side.running(max_files=1)
    async with Leased(side.data_plane, EXECUTOR_KEY, found).connect() as connection:
        channel = await open_channel(connection)
        assert (await channel.ask(14, string(b"/workspace/a") + b"\0\0\0\0")).status == 0
        assert (await channel.ask(14, string(b"/workspace/b") + b"\0\0\0\0")).status == 15
    side.link.done(found, "I am done", 0)
    view = await side.settled(found)

    assert (str(view.state), view.error and view.error.code) == ("error", "TASK_FAILED")
    assert view.error is not None
    assert "(max_files)" in view.error.message
    assert view.result is not None
    assert view.result.final_summary == "I am done"


@pytest.mark.parametrize("fault", [None, SubletError(LocalCode.PEER_UNREACHABLE, "gone")])
async def test_a_peer_that_takes_no_notice_loses_its_access(
    side: Lender, monkeypatch: pytest.MonkeyPatch, fault: SubletError | None
) -> None:
    monkeypatch.setattr(going_along, "QUOTA_GRACE_SECONDS", 0)
    monkeypatch.setattr(going_along, "QUOTA_SLACK_SECONDS", 0.1)
    side.link.obeys, side.link.fail_fails = False, fault
    found = await side.running(max_file_bytes=50)
    async with Leased(side.data_plane, EXECUTOR_KEY, found).connect() as connection:
        channel = await open_channel(connection)
        assert await write(channel, b"big", 51) == 15
        with anyio.fail_after(20):
            await channel.session.closed.wait()
    view = await side.settled(found)

    assert view.error is not None
    assert "grow beyond 50 bytes (max_file_bytes)" in view.error.message
    assert side.link.cancelled == [f"tsk_{found}"]


async def test_a_request_is_held_to_the_limits_of_policy(side: Lender) -> None:
    side.limits = AdmissionLimits(max_total_bytes=1000, max_files=10, max_file_bytes=500)
    for more in ({"max_total_bytes": 1001}, {"max_files": 11}, {"max_file_bytes": 501}):
        with pytest.raises(SubletError) as caught:
            await side.create(**more)  # type: ignore[arg-type]  # keywords are checked when they are used
        assert caught.value.code is LocalCode.POLICY_DENIED
        assert next(iter(more)) in caught.value.hint
    found = await side.running(max_files=0)
    view = await side.delegator.view(found)
    assert view.quota is not None
    assert view.quota.model_dump() == {"max_total_bytes": 1000, "max_files": 0, "max_file_bytes": 500}
    reading = await side.create(access_mode="ro")
    assert (await side.delegator.view(reading)).quota is None
