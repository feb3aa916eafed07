"""What was said once, or by a clock that is an hour off: refused by a real executor, also after it was restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.protocol.messages import Done
from support.daemons import SHELL_AGENT, Daemon, two_daemons
from support.hostile_lender import HostileLender
from support.leases import restart

pytestmark = pytest.mark.anyio

Pair = tuple[Daemon, Daemon]
HOUR = 3_600


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with two_daemons(tmp_path_factory.mktemp("replay")) as both:
        yield both


@pytest.mark.parametrize("age", [HOUR, -HOUR])
async def test_a_message_of_another_hour_is_refused(daemons: Pair, age: int) -> None:
    async with HostileLender(*daemons) as lender:
        error = await lender.refused(lender.invitation("x"), age=age)
    data = error.data
    assert isinstance(data, dict)
    assert data["code"] == "AUTH_FAILED"
    assert "clocks" in data["hint"]


@pytest.mark.parametrize("age", [HOUR, -HOUR])
async def test_an_assertion_of_another_hour_is_refused(daemons: Pair, age: int) -> None:
    async with HostileLender(*daemons) as lender:
        answer = await lender.post(lender.body(lender.invitation("x")), lender.assertion(age=age))
    assert answer.status_code == 401
    assert "clocks" in answer.json()["error"]["hint"]


async def test_nothing_is_taken_twice_not_even_after_a_restart(daemons: Pair) -> None:
    executor = daemons[1]
    async with HostileLender(*daemons) as lender:
        invite = lender.invitation("x")
        body, assertion = lender.body(invite), lender.assertion()
        first = (await lender.post(body, assertion)).json()
        assert first["result"]["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"

        for _ in range(2):
            again = await lender.post(body, assertion)
            assert again.status_code == 401
            assert "used before" in again.json()["error"]["message"]
            fresh = (await lender.post(body, lender.assertion())).json()
            assert "received before" in str(fresh["error"])
            await asyncio.to_thread(executor.kill)
            await asyncio.to_thread(restart, executor, SHELL_AGENT)


@pytest.mark.parametrize("expires_at", ["2020-01-01T00:00:00Z", "2999-01-01T00:00:00+14:00"])
async def test_a_lease_is_counted_by_its_seconds_whatever_the_lenders_clock_says(
    daemons: Pair, tmp_path: Path, expires_at: str
) -> None:
    (tmp_path / "lent" / "workspace").mkdir(parents=True)
    async with HostileLender(*daemons) as lender, lender.serving(tmp_path / "lent") as port:
        invite = lender.invitation("echo done > done")
        task, _ = await lender.invite(invite)
        updates = await lender.run(task, lender.start(invite.delegation_id, port, expires_at=expires_at))
    assert isinstance(updates[-1], Done)
    assert (tmp_path / "lent" / "workspace" / "done").read_text() == "done\n"
