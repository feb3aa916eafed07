"""Questions to a person: one for each exact call, bounded, decided once, and over on time."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from sublet.daemon.approvals.questions import (
    MAX_PENDING_PER_AGENT,
    QUESTION_SECONDS,
    Approval,
    QuestionOrigin,
)
from sublet.policy.decision import Action, Resource
from sublet.policy.grants import Call, Grant, arguments_digest, canonical_arguments
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKeys
from support.approvals import AGENT, Clock, Desk, desk
from support.decisions import a_record

pytestmark = pytest.mark.anyio
SHELL = "shell.exec"
SECONDS = 10


async def ask(
    side: Desk,
    command: str = "make",
    *,
    agent: str = "coder",
    scope: str = "ses_1",
    seconds: float = 600,
    kept: bool = False,
) -> Approval:
    canonical = canonical_arguments({"command": command})
    call = Call(agent, SHELL, arguments_digest(canonical), tool_resource(SHELL, {"command": command}), scope)
    origin = QuestionOrigin(None, EventKeys(request_id="req_1"), a_record(AGENT, Action.TOOL_CALL, Resource(SHELL)))
    until = side.clock() + seconds
    return await side.questions.ask(call, canonical, {"reason": "a rule"}, origin, until=until, kept=kept)


def grant_for(side: Desk, asked: Approval) -> Grant:
    return side.grants.make(
        agent=asked.agent,
        tool=asked.tool,
        digest=asked.digest,
        issued_by="human",
        ttl_seconds=60,
        max_uses=1,
        approval_id=asked.id,
    )


async def code_of(action: object) -> str:
    with pytest.raises(SubletError) as no:
        await action  # type: ignore[misc]
    return str(no.value.code)


async def test_the_same_call_is_one_question_and_another_is_another(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        first = await ask(side)
        assert await ask(side) == first
        others = [await ask(side, "make all"), await ask(side, scope="ses_2"), await ask(side, agent="other")]
        assert len({first.id, *(one.id for one in others)}) == 4
        assert await side.kinds() == ["approval_required"] * 4


async def test_a_question_lasts_for_its_time_or_its_lease(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        long, short = await ask(side, seconds=7200), await ask(side, "b", seconds=30)
        assert long.expires_at - long.created_at == QUESTION_SECONDS
        assert (short.expires_at, short.ends_at - short.created_at < 31) == (short.ends_at, True)
        side.clock.ahead += 60
        assert (await side.questions.find(short.id)).state == "expired"
        assert [one.id for one in await side.questions.list()] == [long.id]
        again = await ask(side, "b")
        assert again.id != short.id, "what is over is asked anew"


async def test_open_questions_of_one_agent_are_bounded_and_hide_none_of_others(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        for number in range(MAX_PENDING_PER_AGENT):
            await ask(side, f"make {number}")
        assert await code_of(ask(side, "one more")) == LocalCode.UNAVAILABLE
        other = await ask(side, agent="other")
        assert other.id in [one.id for one in await side.questions.list(limit=2)]
        side.clock.ahead += QUESTION_SECONDS + 1
        await ask(side, "there is room again")


async def test_an_approval_puts_its_grant_in_force_and_is_decided_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        asked = await ask(side)
        decided = await side.questions.approve(asked, grant_for(side, asked), "human")
        assert (decided.state, decided.decided_by) == ("approved", "human")
        assert [one.approval_id for one in await side.grants.list(usable=True)] == [asked.id]
        asking, said, issued = (await side.journal.events.events_after(0)).events
        assert (said.keys.causation_id, issued.keys.causation_id) == (asking.seq, said.seq)
        assert said.keys.request_id == "req_1"
        assert await code_of(side.questions.deny(asked.id, "human")) == LocalCode.CONFLICT
        assert await code_of(side.questions.approve(asked, grant_for(side, asked), "human")) == LocalCode.CONFLICT
        assert len(await side.grants.list()) == 1


async def test_what_is_over_is_not_approved_any_more(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        asked = await ask(side, seconds=30)
        side.clock.ahead += 31
        assert await code_of(side.questions.approve(asked, grant_for(side, asked), "human")) == LocalCode.CONFLICT
        assert await side.grants.list() == []


async def test_who_waits_goes_on_when_it_is_decided(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        asked = await ask(side)
        became: list[str] = []

        async def wait() -> None:
            became.append((await side.questions.wait(asked)).state)

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            group.start_soon(wait)
            with anyio.fail_after(SECONDS):
                while not side.questions.waits(asked.id):
                    await anyio.sleep(0)
                await side.questions.deny(asked.id, "human")
        assert became == ["denied", "denied"]
        assert not side.questions.waits(asked.id)


async def test_who_stops_waiting_takes_the_question_back_unless_it_is_kept(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        plain, kept = await ask(side), await ask(side, "kept", kept=True)
        for asked in (plain, kept):
            with anyio.move_on_after(0.01):
                await side.questions.wait(asked)
        assert (await side.questions.find(plain.id)).state == "withdrawn"
        assert (await side.questions.find(kept.id)).state == "pending"
        assert side.questions.waits(kept.id)
        await side.questions.withdraw(kept.id)
        assert (await side.questions.find(kept.id)).state == "withdrawn"
        assert not side.questions.waits(kept.id)


async def test_who_asked_may_say_no_and_nothing_that_is_over_changes(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        asked = await ask(side, kept=True)
        await side.questions.withdraw(asked.id, denied_by="human")
        assert (await side.questions.find(asked.id)).state == "denied"
        await side.questions.withdraw(asked.id)
        await side.questions.withdraw(asked.id, denied_by="human")
        assert (await side.questions.find(asked.id)).state == "denied"


async def test_waiting_ends_with_the_time_of_the_question(tmp_path: Path) -> None:
    async with desk(tmp_path, clock=Clock()) as side:
        asked = await ask(side, seconds=0.05)
        with anyio.fail_after(SECONDS):
            assert (await side.questions.wait(asked)).state == "expired"


@pytest.mark.parametrize("torn", ["state = 'maybe'", "arguments = '{'", "context = '[]'"])
async def test_a_torn_question_is_asked_anew_and_set_aside(tmp_path: Path, torn: str) -> None:
    async with desk(tmp_path) as side:
        asked = await ask(side)
        await side.store.write(lambda one: one.execute(f"UPDATE approvals SET {torn}").rowcount)
        assert await code_of(side.questions.find(asked.id)) == LocalCode.NOT_FOUND
        assert (await ask(side)).id != asked.id
        await side.questions.set_torn_aside()
        assert asked.id not in [one.id for one in await side.questions.list(pending=False)]


async def test_a_question_that_nobody_asked_is_not_there(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        assert await code_of(side.questions.find("apr_x\x1b")) == LocalCode.NOT_FOUND
        assert await code_of(side.questions.deny("apr_x", "human")) == LocalCode.NOT_FOUND
