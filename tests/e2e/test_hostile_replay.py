"""What was said once, by an older process, or by a clock an hour off: a real executor refuses it, also restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.protocol.messages import Accept, Done, Error, Start
from support.daemons import SHELL_AGENT, Daemon, two_daemons
from support.hostile_lender import HostileLender
from support.leases import assignment, restart

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


# Whoever was taken over


def of(start: Start, generation: int) -> Start:
    """Return ``start`` as the process of that generation says it."""
    return start.model_copy(update={"sublet": start.sublet.model_copy(update={"generation": generation})})


async def test_only_the_newest_process_of_the_lender_is_heard(daemons: Pair, tmp_path: Path) -> None:
    worker = daemons[1]
    work = tmp_path / "workspace"
    work.mkdir()
    async with HostileLender(*daemons) as lender, lender.serving(tmp_path) as port:
        invite = lender.invitation("touch begun; until [ -e go ]; do sleep 0.1; done; touch end")
        task, _ = await lender.invite(invite)
        start = lender.start(invite.delegation_id, port)
        async with asyncio.TaskGroup() as group:
            working = group.create_task(lender.run(task, of(start, 1)))
            async with asyncio.timeout(30):
                while not (work / "begun").exists():
                    await asyncio.sleep(0.05)
            assert isinstance(await lender.link.renew(lender.peer, task, of(start, 2)), Accept)

            for words in (of(start, 1), of(lender.start(invite.delegation_id, 1), 1)):
                late = await lender.link.renew(lender.peer, task, words)
                assert isinstance(late, Error)
                assert late.code == "DECLINED"
                assert "another process" in late.message
            known = assignment(worker, invite.delegation_id)
            assert (known["generation"], known["state"]) == (2, "active")

            (work / "go").touch()
        assert isinstance(working.result()[-1], Done)
        assert (work / "end").exists()

        # Nor does anything begin anew, whoever says it.
        (work / "begun").unlink()
        for generation in (1, 2, 3):
            ended = await lender.link.renew(lender.peer, task, of(start, generation))
            assert isinstance(ended, Error)
        assert not (work / "begun").exists()
        assert worker.mounts == []


async def test_a_renewal_that_is_said_again_word_for_word_is_refused(daemons: Pair, tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    async with HostileLender(*daemons) as lender, lender.serving(tmp_path) as port:
        invite = lender.invitation("until [ -e go ]; do sleep 0.1; done")
        task, _ = await lender.invite(invite)
        start = lender.start(invite.delegation_id, port)
        async with asyncio.TaskGroup() as group:
            working = group.create_task(lender.run(task, start))
            async with asyncio.timeout(30):
                while assignment(daemons[1], invite.delegation_id).get("state") != "active":
                    await asyncio.sleep(0.05)
            body = lender.body(of(start, 2), task)
            first = (await lender.post(body, lender.assertion())).json()
            assert "error" not in first, first
            again = (await lender.post(body, lender.assertion())).json()
            assert "received before" in str(again["error"])
            (tmp_path / "workspace" / "go").touch()
        assert isinstance(working.result()[-1], Done)
