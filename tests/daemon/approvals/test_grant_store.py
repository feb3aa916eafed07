"""Grants in the store: the narrowest first, used up with the journal's word or not at all, and over on time."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from sublet.daemon.approvals import grant_store
from sublet.daemon.approvals.grant_store import KEEP_SECONDS, UNKNOWN_OUTCOME, Called, GrantStore
from sublet.policy.grants import Call, Grant, Moment, arguments_digest, canonical_arguments
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKeys
from support.approvals import Clock, Desk, desk

pytestmark = pytest.mark.anyio
SHELL = "shell.exec"
CALLED = Called("c1", None, {"tool": SHELL}, EventKeys(agent_id="coder"))


def digest_of(arguments: dict[str, JsonValue]) -> str:
    return arguments_digest(canonical_arguments(arguments))


def wanted(scope: str = "", agent: str = "coder", **arguments: JsonValue) -> Call:
    arguments = arguments or {"command": "make"}
    return Call(agent, SHELL, digest_of(arguments), tool_resource(SHELL, arguments), scope)


def made(
    side: Desk,
    *,
    digest: str | None = digest_of({"command": "make"}),
    uses: int = 1,
    seconds: int = 60,
    when: dict[str, str] | None = None,
    scope: str = "",
    ends_at: float | None = None,
) -> Grant:
    return side.grants.make(
        agent="coder",
        tool=SHELL,
        digest=digest,
        issued_by="human",
        ttl_seconds=seconds,
        max_uses=uses,
        when=when,
        scope=scope,
        ends_at=ends_at,
    )


async def sql(side: Desk, statement: str, *values: str | float) -> None:
    await side.store.write(lambda connection: connection.execute(statement, values).rowcount)


async def test_a_use_is_one_transaction_with_the_event_of_its_call(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        grant = await side.grants.issue(made(side))
        assert await side.grants.find(wanted()) == grant
        use = await side.grants.consume(wanted(), CALLED)
        assert use is not None
        assert (use.grant.remaining, use.event.data["grantId"], use.event.data["issuedBy"]) == (0, grant.id, "human")
        assert await side.kinds() == ["grant_issued", "tool_call"]
        assert await side.grants.outcomes(grant.id) == ["running"]
        await side.grants.ended(use.id, "failed")
        assert await side.grants.outcomes(grant.id) == ["failed"]
        assert await side.grants.consume(wanted(), CALLED) is None
        assert await side.kinds() == ["grant_issued", "tool_call"]


async def test_what_can_not_be_journalled_uses_nothing_up(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        grant = await side.grants.issue(made(side))
        with pytest.raises(ValueError, match="key fields"):
            await side.grants.consume(wanted(), Called("c1", None, {"agentId": "x"}, EventKeys()))
        assert await side.grants.find(wanted()) == grant
        assert await side.grants.outcomes(grant.id) == []


async def test_calls_at_once_spend_each_use_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        await side.grants.issue(made(side, uses=3))
        spent: list[bool] = []

        async def one() -> None:
            spent.append(await side.grants.consume(wanted(), CALLED) is not None)

        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(one)
        assert spent.count(True) == 3


async def test_the_narrowest_is_used_before_a_wider_one_and_the_first_to_end_before_others(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        wide = await side.grants.issue(made(side, digest=None, when={"args.command": "ma*"}))
        late = await side.grants.issue(made(side, seconds=600))
        soon = await side.grants.issue(made(side, seconds=60))
        order = [await side.grants.consume(wanted(), CALLED) for _ in range(4)]
        assert [use and use.grant.id for use in order] == [soon.id, late.id, wide.id, None]


@pytest.mark.parametrize(
    "call", [wanted(agent="other"), wanted(command="make all"), wanted("ses_2")], ids=["agent", "arguments", "scope"]
)
async def test_a_grant_is_for_its_agent_its_arguments_and_its_scope(tmp_path: Path, call: Call) -> None:
    async with desk(tmp_path) as side:
        await side.grants.issue(made(side, scope="ses_1"))
        assert await side.grants.find(call) is None
        assert await side.grants.find(wanted("ses_1")) is not None


async def test_a_grant_ends_with_its_time_with_its_lease_and_when_it_is_revoked(tmp_path: Path) -> None:
    clock = Clock()
    async with desk(tmp_path, clock=clock) as side:
        assert made(side, seconds=600, ends_at=clock() + 5).expires_at < clock() + 6
        grant = await side.grants.issue(made(side, seconds=60))
        clock.ahead += 61
        assert await side.grants.find(wanted()) is None
        assert await side.grants.list(usable=True) == []
        assert [one.id for one in await side.grants.list()] == [grant.id]
        other = await side.grants.issue(made(side))
        assert (await side.grants.revoke(other.id, "human")).revoked_at is not None
        assert await side.grants.find(wanted()) is None
        before = await side.kinds()
        await side.grants.revoke(other.id, "human")
        assert await side.kinds() == before, "twice is no error, and told once"
        with pytest.raises(SubletError) as no:
            await side.grants.revoke("grt_nobody", "human")
        assert no.value.code is LocalCode.NOT_FOUND


async def test_grants_in_force_are_bounded_and_old_ones_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grant_store, "MAX_GRANTS", 2)
    clock = Clock()
    async with desk(tmp_path, clock=clock) as side:
        first = await side.grants.issue(made(side))
        await side.grants.issue(made(side))
        with pytest.raises(SubletError) as no:
            await side.grants.issue(made(side))
        assert no.value.code is LocalCode.UNAVAILABLE
        await side.grants.revoke(first.id, "human")
        await side.grants.issue(made(side))
        clock.ahead += 60 + KEEP_SECONDS + 1
        kept = await side.grants.issue(made(side))
        assert [one.id for one in await side.grants.list()] == [kept.id]


async def test_all_are_void_at_once_and_only_those_in_force_count(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        await side.grants.revoke((await side.grants.issue(made(side))).id, "human")
        await side.grants.issue(made(side))
        count = await side.journal.events.transact(
            lambda connection, events: side.grants.void_all(connection, events, "approver")
        )
        assert count == 1
        assert await side.grants.find(wanted()) is None
        assert (await side.journal.events.events_after(0)).events[-1].data == {"grants": 1, "by": "approver"}


async def test_a_start_tells_of_uses_whose_end_nobody_knows(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        grant = await side.grants.issue(made(side, uses=2))
        cut = await side.grants.consume(wanted(), CALLED)
        done = await side.grants.consume(wanted(), CALLED)
        assert cut is not None
        assert done is not None
        await side.grants.ended(done.id, "done")
    async with desk(tmp_path) as side:
        assert await side.grants.settle() == 1
        assert await side.grants.outcomes(grant.id) == [UNKNOWN_OUTCOME, "done"]
        last = (await side.journal.events.events_after(0)).events[-1]
        assert (str(last.kind), last.keys.causation_id, last.keys.agent_id) == ("tool_error", cut.event.seq, "coder")
        assert await side.grants.settle() == 0


@pytest.mark.parametrize("torn", ["conditions = '[1]'", "conditions = '{\"args.command\": 1}'"])
async def test_a_torn_grant_allows_nothing_and_keeps_no_other_from_being_used(tmp_path: Path, torn: str) -> None:
    async with desk(tmp_path) as side:
        bad = await side.grants.issue(made(side, seconds=30))
        good = await side.grants.issue(made(side, seconds=60))
        await sql(side, f"UPDATE grants SET {torn} WHERE id = ?", bad.id)
        found = await side.grants.consume(wanted(), CALLED)
        assert found is not None
        assert found.grant.id == good.id
        assert await side.grants.consume(wanted(), CALLED) is None


async def test_a_clock_that_is_set_back_gives_no_time_back(tmp_path: Path) -> None:
    now = [Moment(1_000_000.0, "boot", 100.0)]
    async with desk(tmp_path) as side:
        grants = GrantStore(side.journal, lambda: now[0])
        grant = grants.make(
            agent="coder", tool=SHELL, digest=wanted().digest, issued_by="human", ttl_seconds=60, max_uses=1
        )
        await grants.issue(grant)
        now[0] = Moment(999_000.0, "boot", 161.0)
        assert await grants.find(wanted()) is None
        assert await grants.list(usable=True) == []
