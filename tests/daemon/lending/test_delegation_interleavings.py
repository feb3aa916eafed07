"""Whatever order the peer, the owner and the clock act in: one end, settled, and nothing left in force."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from sublet.protocol.delegation.events import Failed
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.lifecycle import DELEGATION_TABLE, DelegationState, is_terminal
from support.budgets import examples
from support.lender import WAYS, Lender, lender
from support.scripted_link import UNREACHABLE, Answer, Script, Step, accepting, failing, hanging, refusing

ANSWERS: dict[str, Callable[[], Answer]] = {
    "accept": accepting,
    "narrow": lambda: accepting(accepted_access_mode="ro", max_ttl_seconds=30),
    "reverse": lambda: accepting(sublet={"reverse": {"port": 9}}),
    "plain": lambda: accepting(public_key=None),
    "bad key": lambda: accepting(public_key="ssh-ed25519 nonsense"),
    "refuse": refusing,
    "unreachable": lambda: failing(UNREACHABLE),
    "forged": lambda: failing(SubletError(LocalCode.KEY_CHANGED, "not bob")),
    "defect": lambda: failing(RuntimeError("a defect")),
    "silence": lambda: hanging,
}
ENDS = [str(state) for state in DelegationState if is_terminal(DELEGATION_TABLE, state)]
BREAKS: dict[str, Step] = {
    "auth": SubletError(ErrorCode.AUTH_FAILED, "not bob"),
    "defect": RuntimeError("a defect"),
    "end": Script.END,
}

peer_acts = st.one_of(
    st.tuples(st.just("progress"), st.sampled_from(["mounting", "need_reverse", "running", "unmounting"])),
    st.tuples(st.just("text"), st.text(max_size=20)),
    st.tuples(st.just("done"), st.just("")),
    st.tuples(st.just("error"), st.sampled_from([str(code) for code in ErrorCode])),
    st.tuples(st.just("break"), st.sampled_from(sorted(BREAKS))),
)
pauses = st.tuples(st.just("pause"), st.sampled_from(["0", "1", "5", "20", "blocked", "invited", "started", "running"]))
own_acts = st.tuples(st.sampled_from(["cancel", "cancel and give up", "expire", "look", "write"]), st.just(""))
Act = tuple[str, str]


@st.composite
def scripts(draw: st.DrawFn) -> list[Act]:
    """What the peer does, one time after another, and at most two acts of the owner or the clock in between."""
    script = draw(st.lists(st.one_of(pauses, peer_acts), max_size=8))
    for act in draw(st.lists(own_acts, max_size=2)):
        script.insert(draw(st.integers(0, len(script))), act)
    return script


@settings(max_examples=examples(40), deadline=None)
@given(
    answer=st.sampled_from(["accept"] * len(ANSWERS) + sorted(ANSWERS)),
    script=scripts(),
    last=st.sampled_from(["done", "done and cancel", "error", "cancel"]),
    queued=st.booleans(),
)
def test_there_is_one_end_and_nothing_is_left(answer: str, script: list[Act], last: str, queued: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="sublet-test-") as root:
        try:
            asyncio.run(_play(Path(root), answer, script, last, queued=queued))
        finally:
            # A delegation that ends leaves what it was at in the background to itself.
            for thread in threading.enumerate():
                if thread.name.startswith("background "):
                    thread.join(20)


async def _play(root: Path, answer: str, script: list[Act], last: str, *, queued: bool) -> None:
    async with lender(root) as side:
        before = await side.running() if queued else None
        side.link.answer = ANSWERS[answer]()
        found = await side.create()
        seen: list[DelegationState] = []
        async with anyio.create_task_group() as group:
            for act, detail in script:
                await _act(side, group, found, act, detail)
                seen.append((await side.delegator.view(found)).state)
            if before is not None:
                side.link.done(before)
                await side.settled(before)
            await _finish(side, found, "cancel" if answer == "silence" else last)
        view = await side.settled(found)
        ends = {state for state in [*seen, view.state] if is_terminal(DELEGATION_TABLE, state)}
        assert ends == {view.state}
        assert (view.state is DelegationState.COMPLETED) == (view.result is not None)
        assert (view.error is None) == (view.state is DelegationState.COMPLETED)
        assert (view.audit is not None) == ("started" in await side.states(found))
        assert side.locks.holders() == ()
        assert await side.journal.resources.open_resources() == []
        assert side.link.streams_open == 0
        assert await side.delegator.list(limit=10, active=True) == []


async def _finish(side: Lender, found: str, last: str) -> None:
    if last.startswith("done"):
        side.link.done(found)
    if last == "error":
        side.link.error(found)
    if last.endswith("cancel"):
        await side.delegator.cancel(found, "cancelled at last")


async def _act(side: Lender, group: anyio.abc.TaskGroup, found: str, act: str, detail: str) -> None:
    match act:
        case "progress":
            side.link.progress(found, detail)
        case "text":
            side.link.progress(found, text=detail)
        case "done":
            side.link.done(found)
        case "error":
            side.link.error(found, ErrorCode(detail))
        case "break":
            side.link.say(found, BREAKS[detail])
        case "cancel":
            group.start_soon(side.delegator.cancel, found, "cancelled")
        case "cancel and give up":
            with anyio.move_on_after(0):
                await side.delegator.cancel(found, "cancelled")
        case "expire":
            group.start_soon(_expire, side, found)
        case "write":
            (side.project / "new.txt").write_text("new\n")
        case "pause" if detail == "blocked":
            await anyio.wait_all_tasks_blocked()
        case "pause" if detail in WAYS:
            # At most a moment, since it may never come to that.
            with anyio.move_on_after(0.1):
                await side.until(found, *WAYS[WAYS.index(detail) :], *ENDS)
        case "pause":
            for _ in range(int(detail)):
                await asyncio.sleep(0)


async def _expire(side: Lender, found: str) -> None:
    """Do what a look at a lease that is over does."""
    run = side.delegator._runs.get(found)
    if run is not None:
        error = SubletError(ErrorCode.EXPIRED, "the time is over")
        await run.stop(Failed(error))
