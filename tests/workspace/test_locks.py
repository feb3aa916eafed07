"""Directory locks: overlap, sharing, order, waiting and giving up."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace import locks
from sublet.workspace.export import AccessMode
from sublet.workspace.locks import DirectoryLocks, LockRequest, LockTable

pytestmark = pytest.mark.anyio

PATHS = ["/w", "/w/a", "/w/a/b", "/w/ab", "/w/c", "/x"]


def overlap(one: Path, two: Path) -> bool:
    """The definition, told another way than in the code."""
    a, b = str(PurePosixPath(one)) + "/", str(PurePosixPath(two)) + "/"
    return a.startswith(b) or b.startswith(a)


def clash(one: LockRequest, two: LockRequest) -> bool:
    pairs = [(a, b) for a in one.wants for b in two.wants]
    return any("rw" in (mode, other) and overlap(path, theirs) for (path, mode), (theirs, other) in pairs)


@pytest.mark.parametrize(
    ("first", "second", "shares"),
    [
        (("/w", "rw"), ("/w", "rw"), False),
        (("/w", "ro"), ("/w", "ro"), True),
        (("/w", "ro"), ("/w", "rw"), False),
        (("/w", "rw"), ("/w/a/b", "ro"), False),
        (("/w/a/b", "rw"), ("/w", "ro"), False),
        (("/w/a", "rw"), ("/w/ab", "rw"), True),
        (("/w/a", "rw"), ("/w/c", "rw"), True),
    ],
)
def test_overlap(first: tuple[str, AccessMode], second: tuple[str, AccessMode], shares: bool) -> None:
    table = LockTable()
    assert table.request(LockRequest("one", [(Path(first[0]), first[1])]))
    assert table.request(LockRequest("two", [(Path(second[0]), second[1])])) is shares


def test_a_writer_is_not_starved_by_readers_that_come_later() -> None:
    table = LockTable()
    reader, writer, late = (
        LockRequest("r", [(Path("/w"), "ro")]),
        LockRequest("w", [(Path("/w"), "rw")]),
        LockRequest("l", [(Path("/w"), "ro")]),
    )
    assert table.request(reader)
    assert not table.request(writer)
    assert not table.request(late)
    assert (table.position(writer), table.position(late)) == (1, 1)
    assert table.release(reader) == [writer]
    assert table.release(writer) == [late]


def test_a_request_overtakes_a_queue_that_does_not_concern_it() -> None:
    table = LockTable()
    table.request(LockRequest("a", [(Path("/w/a"), "rw")]))
    assert not table.request(LockRequest("b", [(Path("/w/a"), "rw")]))
    assert table.request(LockRequest("c", [(Path("/w/c"), "rw")]))


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "MAX_WAITING", 1)
    table = LockTable()
    table.request(LockRequest("a", [(Path("/w"), "rw")]))
    table.request(LockRequest("b", [(Path("/w"), "rw")]))
    with pytest.raises(SubletError) as caught:
        table.request(LockRequest("c", [(Path("/w"), "rw")]))
    assert caught.value.code is LocalCode.UNAVAILABLE


@given(
    st.lists(
        st.one_of(
            st.lists(
                st.tuples(st.sampled_from(PATHS).map(Path), st.sampled_from(["ro", "rw"])), min_size=1, max_size=3
            ),
            st.integers(min_value=0, max_value=30),
        ),
        max_size=40,
    )
)
def test_no_order_of_events_breaks_the_table(steps: list[list[tuple[Path, AccessMode]] | int]) -> None:
    """Holders never clash, each waiter is waiting for a reason, and when all end all were served in order."""
    table = LockTable()
    served: list[LockRequest] = []
    everyone: list[LockRequest] = []

    def check() -> None:
        held = table.held
        assert not any(clash(a, b) for i, a in enumerate(held) for b in held[i + 1 :])
        for i, waiter in enumerate(table.waiting):
            assert any(clash(waiter, other) for other in (*held, *table.waiting[:i]))
            assert table.position(waiter) >= 1

    for step in steps:
        before = {w: table.position(w) for w in table.waiting}
        if isinstance(step, list):
            request = LockRequest(str(len(everyone)), step)
            everyone.append(request)
            if table.request(request):
                served.append(request)
        elif table.held + table.waiting:
            present = table.held + table.waiting
            served += table.release(present[step % len(present)])
        check()
        assert all(table.position(w) <= before[w] for w in table.waiting if w in before)
    while table.held:
        served += table.release(table.held[0])
        check()
    assert not table.waiting
    for i, earlier in enumerate(served):  # of two that clash, the one that came first was served first
        assert not any(clash(earlier, later) and int(later.owner) < int(earlier.owner) for later in served[i + 1 :])


async def test_waiters_are_granted_in_order_and_see_their_position() -> None:
    directory_locks = DirectoryLocks()
    order: list[str] = []
    seen: dict[str, list[int]] = {"b": [], "c": []}
    held = asyncio.Event()
    end = asyncio.Event()

    async def use(owner: str) -> None:
        async with directory_locks.acquire(
            [(Path("/w"), "rw")],
            owner=owner,
            timeout=30,
            on_position=seen[owner].append if owner in seen else lambda _: None,
        ):
            order.append(owner)
            held.set()
            await end.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(use("a"))
        await held.wait()
        group.create_task(use("b"))
        group.create_task(use("c"))
        while not seen["c"]:
            await asyncio.sleep(0)
        end.set()
    assert order == ["a", "b", "c"]
    assert seen == {"b": [1, 0], "c": [2, 1, 0]}
    assert directory_locks.holders() == ()


async def test_giving_up_names_the_holder_and_frees_the_place() -> None:
    directory_locks = DirectoryLocks()
    async with directory_locks.acquire([(Path("/w"), "rw")], owner="dlg_1", timeout=0):
        with pytest.raises(SubletError, match="dlg_1") as caught:
            async with directory_locks.acquire([(Path("/w/a"), "ro")], owner="dlg_2", timeout=0):
                pytest.fail("granted beside a writer")
        assert caught.value.code is LocalCode.CONFLICT
    async with directory_locks.acquire([(Path("/w"), "rw")], owner="dlg_3", timeout=0):
        assert [h.owner for h in directory_locks.holders()] == ["dlg_3"]


async def test_a_cancelled_waiter_lets_the_next_one_through() -> None:
    directory_locks = DirectoryLocks()
    queued = asyncio.Event()

    async def wait_in_vain() -> None:
        async with directory_locks.acquire(
            [(Path("/w"), "rw")], owner="b", timeout=30, on_position=lambda _: queued.set()
        ):
            pytest.fail("granted beside another writer")

    async with directory_locks.acquire([(Path("/w"), "ro")], owner="a", timeout=0):
        async with asyncio.TaskGroup() as group:
            writer = group.create_task(wait_in_vain())
            await queued.wait()
            writer.cancel()
        async with directory_locks.acquire([(Path("/w"), "ro")], owner="c", timeout=0):
            assert [h.owner for h in directory_locks.holders()] == ["a", "c"]
