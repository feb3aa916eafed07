"""What a program prints is told while it runs, and what fails meanwhile comes out as it is."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from sublet.supervisor import output
from sublet.supervisor.job import Output
from sublet.supervisor.output import Capture, flushed_regularly

pytestmark = pytest.mark.anyio


async def test_output_is_told_while_the_body_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "REPORT_SECONDS", 0.001)
    told = anyio.Event()
    capture = Capture("stdout", lambda _: told.set())
    async with flushed_regularly(capture):
        capture.feed(b"a")
        with anyio.fail_after(10):
            await told.wait()


async def test_a_failure_of_the_body_comes_out_as_it_is() -> None:
    reported: list[Output] = []
    with pytest.raises(ValueError, match="no"):
        async with flushed_regularly(Capture("stdout", lambda piece: reported.append(piece))):
            raise ValueError("no")


async def test_a_cancelled_body_ends_what_flushes() -> None:
    entered = asyncio.Event()

    async def work() -> None:
        async with flushed_regularly(Capture("stdout", lambda _: None)):
            entered.set()
            await anyio.sleep_forever()

    async with asyncio.TaskGroup() as group:
        working = group.create_task(work())
        await entered.wait()
        working.cancel()
    assert working.cancelled()
