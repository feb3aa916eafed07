from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sublet.daemon.governing import lend_roots
from sublet.daemon.governing.lend_roots import LendRoots
from sublet.daemon.peering import nonces, tokens
from sublet.daemon.peering.nonces import NonceMemory
from sublet.daemon.peering.tokens import TokenStore
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.signing import MAX_CLOCK_SKEW_SECONDS

pytestmark = pytest.mark.anyio


class Clock:
    """A wall clock that the test moves."""

    def __init__(self) -> None:
        self.at = 1_800_000_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await Store.open(tmp_path / "sublet.db")
    yield store
    await store.close()


async def test_a_token_is_shown_once_and_opens_until_it_is_over(store: Store) -> None:
    clock, journal = Clock(), Journal(store)
    held = await TokenStore.load(journal, clock)
    view = await held.create("ci", 60)
    assert view.token is not None
    assert held.find(view.token) == "ci"
    assert held.find(view.token + "x") is held.find("") is held.find("x" * 10_000) is held.find("\ud800") is None
    assert [listed.token for listed in held.list()] == [None]
    again = await TokenStore.load(journal, clock)
    assert again.find(view.token) == "ci"
    clock.at += 60
    assert held.find(view.token) is None
    assert [listed.name for listed in held.list()] == ["ci"]
    renewed = await held.create("ci", None)
    assert renewed.token is not None
    assert held.find(renewed.token) == "ci"
    assert renewed.expires_at is None
    assert view.token.encode() not in b"".join(f.read_bytes() for f in store.path.parent.iterdir())


async def test_a_revoked_token_opens_nothing(store: Store) -> None:
    journal = Journal(store)
    held = await TokenStore.load(journal)
    view = await held.create("ci", None)
    assert view.token is not None
    with pytest.raises(SubletError) as error:
        await held.create("ci", None)
    assert error.value.code is LocalCode.CONFLICT
    await held.revoke("ci")
    assert held.find(view.token) is None
    assert (await TokenStore.load(journal)).list() == []
    with pytest.raises(SubletError) as error:
        await held.revoke("ci")
    assert error.value.code is LocalCode.NOT_FOUND


async def test_odd_names_and_times_are_refused_and_tokens_bounded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = await TokenStore.load(Journal(store))
    for name, ttl in (("", None), ("A", None), ("a\n", None), ("a", 0), ("a", 10**12)):
        with pytest.raises(SubletError) as error:
            await held.create(name, ttl)
        assert error.value.code is LocalCode.INVALID_ARGUMENT
    monkeypatch.setattr(tokens, "MAX_TOKENS", 1)
    await held.create("a", None)
    with pytest.raises(SubletError, match="Revoke"):
        await held.create("b", None)


async def test_a_nonce_is_new_once_also_for_the_next_process(store: Store) -> None:
    clock = Clock()
    memory = await NonceMemory.load(store, clock)
    at = int(clock.at)
    assert memory.first_seen("n", at)
    assert not memory.first_seen("n", at)
    assert memory.first_seen("m", at + MAX_CLOCK_SKEW_SECONDS)
    again = await NonceMemory.load(store, clock)
    assert not again.first_seen("n", at)
    assert not again.first_seen("m", at + MAX_CLOCK_SKEW_SECONDS)
    assert again.first_seen("\ud800", at)


async def test_nonces_are_forgotten_only_when_they_can_no_longer_come_back(store: Store) -> None:
    clock, steady = Clock(), Clock()
    memory = await NonceMemory.load(store, clock, steady)
    at = int(clock.at)
    memory.first_seen("early", at)
    memory.first_seen("late", at + MAX_CLOCK_SKEW_SECONDS)
    clock.at += MAX_CLOCK_SKEW_SECONDS + 1
    steady.at += MAX_CLOCK_SKEW_SECONDS + 1
    assert memory.first_seen("next", int(clock.at))
    assert not memory.first_seen("early", at)
    assert not memory.first_seen("late", at + MAX_CLOCK_SKEW_SECONDS)
    count = await store.write(lambda c: int(c.execute("SELECT count(*) FROM nonces").fetchone()[0]))
    assert count == 2


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_clock_that_leaps_ahead_and_back_makes_nothing_new_again(store: Store, restarted: bool) -> None:
    clock, steady = Clock(), Clock()
    memory = await NonceMemory.load(store, clock, steady)
    at = int(clock.at)
    assert memory.first_seen("paid", at)
    clock.at += 24 * 3600
    if restarted:
        memory = await NonceMemory.load(store, clock, steady)
    steady.at += nonces.PRUNE_SECONDS
    assert memory.first_seen("meanwhile", int(clock.at))
    clock.at -= 24 * 3600
    assert not memory.first_seen("paid", at)
    assert not (await NonceMemory.load(store, clock, steady)).first_seen("paid", at)
    # What is too old by both clocks goes.
    for one in (clock, steady):
        one.at += 2 * MAX_CLOCK_SKEW_SECONDS + nonces.PRUNE_SECONDS
    assert memory.first_seen("next", int(clock.at))
    count = await store.write(lambda c: int(c.execute("SELECT count(*) FROM nonces").fetchone()[0]))
    assert count == 2, "the one of tomorrow can come back, and the next"


async def test_when_no_more_can_be_remembered_nothing_is_let_through(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nonces, "MAX_NONCES", 1)
    monkeypatch.setattr(nonces, "KEPT_FOR_EACH", 1)
    clock = Clock()
    memory = (await NonceMemory.load(store, clock)).of("peer:x")
    memory.first_seen("a", int(clock.at))
    with pytest.raises(SubletError) as error:
        memory.first_seen("b", int(clock.at))
    assert error.value.code is LocalCode.UNAVAILABLE


async def test_a_nonce_is_on_the_disk_before_what_it_allowed(store: Store) -> None:
    clock = Clock()
    memory = await NonceMemory.load(store, clock)
    memory.first_seen("n", int(clock.at))
    count = await store.write(lambda c: int(c.execute("SELECT count(*) FROM nonces").fetchone()[0]))
    assert count == 1


async def test_lend_roots_are_kept_and_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(store)
    roots = await LendRoots.load(journal)
    assert await roots.add("/b") == ["/b"]
    assert await roots.add("/a") == await roots.add("/a") == ["/a", "/b"]
    monkeypatch.setattr(lend_roots, "MAX_ROOTS", 2)
    with pytest.raises(SubletError):
        await roots.add("/c")
    assert (await LendRoots.load(journal)).paths() == ["/a", "/b"]
    assert await roots.remove("/a") == ["/b"]
    with pytest.raises(SubletError) as error:
        await roots.remove("/a")
    assert error.value.code is LocalCode.NOT_FOUND
