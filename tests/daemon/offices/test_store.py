"""Offices and tokens on the disk: shown once, kept as digests, useless at once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sublet.daemon.offices import store as offices
from sublet.daemon.offices.store import OfficeStore
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.offices.names import Role

pytestmark = pytest.mark.anyio


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Store]:
    database = await Store.open(tmp_path / "sublet.db")
    yield database
    await database.close()


async def test_a_token_is_shown_once_and_found_after_a_restart(database: Store) -> None:
    held = await OfficeStore.load(Journal(database))
    office = await held.create("desk")
    assert uuid.UUID(office.id).version == 4
    secret, seat, replaced = await held.create_token(office, Role.COMPUTER, "laptop", replace=False)
    assert (seat.office_id, seat.office, seat.role, seat.name) == (office.id, "desk", Role.COMPUTER, "laptop")
    assert replaced is None
    again = await OfficeStore.load(Journal(database))
    assert again.find(secret) == seat
    assert again.list() == [office]
    assert again.get("desk") == again.get(office.id) == office
    for wrong in ("", secret + "x", secret[:-1], "x" * 10_000, "\ud800"):
        assert again.find(wrong) is None
    assert secret.encode() not in b"".join(f.read_bytes() for f in database.path.parent.iterdir())


async def test_a_name_has_one_token_which_is_replaced_on_purpose_alone(database: Store) -> None:
    held = await OfficeStore.load(Journal(database))
    office, other = await held.create("desk"), await held.create("other")
    old, seat, _ = await held.create_token(office, Role.AGENT, "alice", replace=False)
    with pytest.raises(SubletError) as refused:
        await held.create_token(office, Role.COMPUTER, "alice", replace=False)
    assert refused.value.code is LocalCode.CONFLICT
    new, _, replaced = await held.create_token(office, Role.COMPUTER, "alice", replace=True)
    assert replaced == seat
    assert held.find(old) is None
    # Names are of their office.
    await held.create_token(other, Role.AGENT, "alice", replace=False)
    for there in (held, await OfficeStore.load(Journal(database))):
        found = there.find(new)
        assert found is not None
        assert found.role is Role.COMPUTER


async def test_a_revoked_token_and_those_of_a_closed_office_open_nothing(database: Store) -> None:
    held = await OfficeStore.load(Journal(database))
    office = await held.create("desk")
    made = [(await held.create_token(office, Role.COMPUTER, name, replace=False))[0] for name in ("a", "b")]
    assert (await held.revoke(office, "a")).name == "a"
    assert [held.find(secret) is None for secret in made] == [True, False]
    with pytest.raises(SubletError, match="nobody in this office has that name"):
        await held.revoke(office, "a")
    assert [seat.name for seat in await held.close(office)] == ["b"]
    for there in (held, await OfficeStore.load(Journal(database))):
        assert there.list() == []
        assert [there.find(secret) for secret in made] == [None, None]
    with pytest.raises(SubletError) as refused:
        await held.create_token(office, Role.COMPUTER, "c", replace=False)
    assert refused.value.code is LocalCode.NOT_FOUND
    with pytest.raises(SubletError):
        await held.close(office)


@pytest.mark.parametrize("name", ["", "Desk", "a/b", "..", "x" * 64, "a b", "é"])
async def test_what_can_be_no_name_is_refused(database: Store, name: str) -> None:
    held = await OfficeStore.load(Journal(database))
    with pytest.raises(SubletError) as refused:
        await held.create(name)
    assert refused.value.code is LocalCode.INVALID_ARGUMENT
    office = await held.create("desk")
    with pytest.raises(SubletError) as refused:
        await held.create_token(office, Role.AGENT, f"/{name}", replace=False)
    assert refused.value.code is LocalCode.INVALID_ARGUMENT


async def test_there_are_so_many_and_no_more(database: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offices, "MAX_OFFICES", 2)
    monkeypatch.setattr(offices, "MAX_TOKENS", 1)
    held = await OfficeStore.load(Journal(database))
    office = await held.create("a")
    with pytest.raises(SubletError) as refused:
        await held.create("a")
    assert refused.value.code is LocalCode.CONFLICT
    await held.create("b")
    with pytest.raises(SubletError) as refused:
        await held.create("c")
    assert refused.value.code is LocalCode.UNAVAILABLE
    await held.create_token(office, Role.AGENT, "alice", replace=False)
    with pytest.raises(SubletError) as refused:
        await held.create_token(office, Role.AGENT, "eve", replace=False)
    assert refused.value.code is LocalCode.UNAVAILABLE
    await held.create_token(office, Role.AGENT, "alice", replace=True)


async def test_a_token_of_an_office_that_is_closed_meanwhile_is_none(database: Store) -> None:
    held = await OfficeStore.load(Journal(database))
    office = await held.create("desk")
    made, closed = await asyncio.gather(
        held.create_token(office, Role.AGENT, "alice", replace=False), held.close(office), return_exceptions=True
    )
    assert closed == []
    assert isinstance(made, SubletError)
    assert made.code is LocalCode.NOT_FOUND
    assert held._tokens == {}
    again = await OfficeStore.load(Journal(database))
    assert again.list() == []
    assert again._tokens == {}
