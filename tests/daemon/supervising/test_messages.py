"""Plain messages: one job each, in a directory of its own, and gone with whoever asked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from sublet.app.supervising import Around, make_supervising
from sublet.daemon.config.config_file import SupervisorConfig
from sublet.daemon.ports.given_to_a2a import AskedBack
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.daemon.supervising.messages import MessageAnswerer
from sublet.daemon.supervising.runs import MAX_PENDING_PIECES
from sublet.policy.decision import Subject
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.protocol.chain import Chain
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.job import Job, Outcome, Output, Report
from sublet.supervisor.slots import Slots
from support.decisions import gatekeeper
from support.jobs import command
from support.supervising import NODE
from support.worker import ScriptedAgent, work_for_ever

pytestmark = pytest.mark.anyio
CLIENT = Subject("a2a", "script")


class Side:
    """One daemon's half that answers messages."""

    def __init__(self, root: Path, store: Store) -> None:
        self.agent = ScriptedAgent()
        self.agents: list[AgentConfig] = [command()]
        self.slots = Slots(lambda: 1)
        self.scratch = root / "scratch"
        policy, journal = Policy(Protected(root / "home")), Journal(store)
        gate = gatekeeper(journal, policy)
        self.supervising = make_supervising(
            Around(
                config=SupervisorConfig(),
                state_dir=root,
                config_dir=root,
                scratch_root=self.scratch,
                node_id=NODE,
                journal=journal,
                gate=gate,
                slots=self.slots,
                agents=lambda: self.agents,
                provider=lambda _: self.agent,
                chain_of=lambda _: Chain(),
                hub=None,
                tool_gate=None,
                capabilities=lambda: "",
                questions=None,
            )
        )
        self.messages = MessageAnswerer(self.supervising.asking, gate, lambda: self.agents, max_contexts=3)

    def pieces(
        self, text: str = "hello", caller: Subject = CLIENT, *, context: str = "c", chain: Chain | None = None
    ) -> AsyncGenerator[str | AskedBack, None]:
        owner = f"token:{caller.name}"
        return self.messages.answer(text, caller, context_id=context, owner=owner, chain=chain or Chain())

    async def ask(
        self, text: str = "hello", caller: Subject = CLIENT, *, context: str = "c", chain: Chain | None = None
    ) -> str:
        said = self.pieces(text, caller, context=context, chain=chain)
        return "".join([piece.question if isinstance(piece, AskedBack) else piece async for piece in said])

    async def serving(self) -> None:
        """Wait until it takes requests."""
        with anyio.fail_after(10):
            while not self.supervising.runs.serving:
                await anyio.sleep(0)

    def check_nothing_held(self) -> None:
        assert self.slots.in_use == 0
        assert not self.scratch.exists() or list(self.scratch.iterdir()) == []


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Side]:
    store = await Store.open(tmp_path / "sublet.db")
    side = Side(tmp_path, store)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(side.supervising.serve)
            await side.serving()
            yield side
            group.cancel_scope.cancel()
    finally:
        await store.close()
    side.check_nothing_held()


async def test_what_the_agent_prints_is_the_answer(side: Side) -> None:
    async def talk(job: Job, report: Report) -> Outcome:
        assert (job.prompt, job.access_mode) == ("hello", "rw")
        assert list(job.workspace.iterdir()) == []
        (job.workspace / "note").write_text("x")
        report(Output("stdout", "one "))
        report(Output("stderr", "[debugging]"))
        report(Output("stdout", "two"))
        return Outcome("done", "two", 0)

    side.agent.work = talk
    assert await side.ask() == "one two"


async def test_an_agent_that_prints_nothing_is_answered_by_its_summary(side: Side) -> None:
    async def quiet(job: Job, report: Report) -> Outcome:
        return Outcome("done", "only on the other stream", 0)

    side.agent.work = quiet
    assert await side.ask() == "only on the other stream"


async def test_a_slow_reader_is_told_what_it_missed(side: Side) -> None:
    async def chatter(job: Job, report: Report) -> Outcome:
        for _ in range(MAX_PENDING_PIECES + 10):
            report(Output("stdout", "12345"))
        return Outcome("done", "the very end", 0)

    side.agent.work = chatter
    answer = await side.ask()
    missed = re.search(r"\[(\d+) characters were not read in time and left out", answer)
    assert missed is not None
    assert missed.start() - 1 + int(missed[1]) == 5 * (MAX_PENDING_PIECES + 10)
    assert answer.endswith("the very end")


async def test_only_who_may_is_answered(side: Side) -> None:
    with pytest.raises(SubletError) as no:
        await side.ask(caller=Subject("mcp", "x"))
    assert no.value.code is LocalCode.POLICY_DENIED
    assert side.agent.jobs == []


async def test_without_an_agent_or_a_slot_it_is_declined(side: Side) -> None:
    with side.slots.run("dlg_other"), pytest.raises(SubletError, match="slots") as no:
        await side.ask()
    assert no.value.code is ErrorCode.DECLINED
    side.agents = []
    with pytest.raises(SubletError) as no:
        await side.ask()
    assert no.value.code is ErrorCode.DECLINED


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (RuntimeError("a defect"), "internal error"),
        (SubletError(ErrorCode.TASK_FAILED, "no sandbox"), "no sandbox"),
        (Outcome("failed", "exit 3", 3, "exit status 3"), "agent test: the agent ended with exit code 3"),
    ],
)
async def test_one_that_fails_fails_alone(side: Side, failure: Exception | Outcome, says: str) -> None:
    async def fail(job: Job, report: Report) -> Outcome:
        if isinstance(failure, Exception):
            raise failure
        return failure

    side.agent.work = fail
    with pytest.raises(SubletError, match=says) as no:
        await side.ask()
    assert no.value.code is ErrorCode.TASK_FAILED
    assert "defect" not in no.value.message
    side.check_nothing_held()


async def test_who_goes_away_takes_the_job_along(side: Side) -> None:
    async def talk(job: Job, report: Report) -> Outcome:
        report(Output("stdout", "one"))
        return await work_for_ever(job, report)

    side.agent.work = talk
    answer = side.pieces()
    async with aclosing(answer) as pieces:
        assert await anext(pieces) == "one"
    assert side.agent.ended.is_set()
    side.check_nothing_held()
    with anyio.CancelScope() as scope:
        asyncio.get_running_loop().call_soon(scope.cancel)
        await side.ask()
    side.check_nothing_held()


async def test_a_stop_of_the_daemon_ends_the_answer_as_a_failure(tmp_path: Path) -> None:
    """And not as a cancellation of whoever reads it."""
    store = await Store.open(tmp_path / "sublet.db")
    side = Side(tmp_path, store)
    side.agent.work = work_for_ever
    failures: list[SubletError] = []

    async def ask() -> None:
        try:
            await side.ask()
        except SubletError as error:
            failures.append(error)

    async with anyio.create_task_group() as group, anyio.create_task_group() as services:
        services.start_soon(side.supervising.serve)
        await side.serving()
        group.start_soon(ask)
        await side.agent.began.wait()
        services.cancel_scope.cancel()
    assert [error.code for error in failures] == [LocalCode.UNAVAILABLE]
    side.check_nothing_held()
    await ask()
    assert [error.code for error in failures] == [LocalCode.UNAVAILABLE] * 2
    await store.close()


async def test_a_context_is_a_session_of_its_client_alone(side: Side) -> None:
    seen: list[tuple[str, str | None]] = []

    async def work(job: Job, report: Report) -> Outcome:
        seen.append((job.prompt, job.provider_session_id))
        return Outcome("done", "ok", 0, provider_session_id=job.provider_session_id or f"p-{len(seen)}")

    side.agent.work = work
    other = Subject("a2a", "other")
    for text, caller in (("one", CLIENT), ("spy", other), ("two", CLIENT)):
        await side.ask(text, caller)
    await side.ask("elsewhere", context="d")
    assert seen == [("one", None), ("spy", None), ("two", "p-1"), ("elsewhere", None)]
    sessions = await side.supervising.sessions.list()
    assert sorted(one.owner for one in sessions) == ["token:other", "token:script", "token:script"]


async def test_a_client_keeps_its_newest_contexts(side: Side) -> None:
    for context in ("a", "b", "c", "a", "d"):
        await side.ask(context=context)
    kept = {str(one.metadata["contextId"]) for one in await side.supervising.sessions.list()}
    assert kept == {"a", "c", "d"}


async def test_a_closed_session_is_told_as_such(side: Side) -> None:
    await side.ask()
    [session] = await side.supervising.sessions.list()
    await side.supervising.sessions.set_status(session.finger_session_id, "completed")
    with pytest.raises(SubletError, match="is completed") as no:
        await side.ask()
    assert no.value.code is ErrorCode.DECLINED


@pytest.mark.parametrize(
    ("chain", "says"),
    [
        (Chain((f"test@{NODE}",), "lse", 60), f"test@{NODE} → test@{NODE}"),
        (Chain(("x@n", f"TEST@{NODE}", "y@n"), "lse", 60), "called by its own call"),
        (Chain(tuple(f"a{number}@n" for number in range(6)), "lse", 60), "nested 6 deep"),
        (Chain(("nobody",), "lse", 60), "no address"),
    ],
)
async def test_a_call_that_loops_starts_nothing(side: Side, chain: Chain, says: str) -> None:
    with pytest.raises(SubletError, match=says) as no:
        await side.ask(chain=chain)
    assert no.value.code is ErrorCode.DECLINED
    assert side.agent.jobs == []


async def test_an_agent_is_called_no_longer_than_its_caller_lives(side: Side) -> None:
    side.agent.work = work_for_ever
    with pytest.raises(SubletError, match="lease of the call was over"):
        await side.ask(chain=Chain(("x@n",), "lse", 0.2))
    assert side.agent.ended.is_set()
    assert side.agent.jobs[0].chain.execution_chain == ("x@n",)


async def test_a_request_that_fits_nobody_is_declined_with_the_reason(side: Side) -> None:
    side.agents = [command(), command().model_copy(update={"id": "other"})]
    with pytest.raises(SubletError, match="there is no module 'jira'") as no:
        await side.ask("/hub jira x")
    assert no.value.code is ErrorCode.DECLINED
    assert "test: no skills told" in await side.ask("/agents")
