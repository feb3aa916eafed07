"""New sessions are bounded by where they come from, so that members come again whatever strangers do elsewhere."""

from __future__ import annotations

import pytest

from sublet.office_server import openings as module
from sublet.office_server.lines import Line, Lines
from sublet.office_server.openings import MAX_ADDRESSES, SESSIONS_AT_ONCE, STRANGERS_AT_ONCE, Openings

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def nothing_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SESSIONS_PER_SECOND", 0.0)
    monkeypatch.setattr(module, "STRANGERS_PER_SECOND", 0.0)


def opened(openings: Openings, address: str, tries: int = 1_000) -> int:
    return sum(openings.may_open(address) for _ in range(tries))


async def test_one_address_takes_a_part_and_all_of_them_no_more_than_all() -> None:
    openings = Openings()
    found = [opened(openings, f"10.0.0.{number}") for number in range(10)]
    assert found[0] == STRANGERS_AT_ONCE
    assert sum(found) == SESSIONS_AT_ONCE


async def test_where_a_member_is_strangers_elsewhere_count_for_nothing() -> None:
    lines = Lines()
    member = Line("10.9.9.9", lines)
    member.become_known()
    for number in range(10):
        opened(lines.openings, f"10.0.0.{number}")
    assert lines.begin("10.8.8.8") is None
    assert opened(lines.openings, "10.9.9.9") == SESSIONS_AT_ONCE


@pytest.mark.parametrize(
    ("one", "other"), [("2001:db8::1", "2001:db8::ffff:2"), ("::ffff:10.0.0.1", "10.0.0.1"), ("", "no address")]
)
async def test_addresses_of_one_machine_are_one(one: str, other: str) -> None:
    openings = Openings()
    assert opened(openings, one) == STRANGERS_AT_ONCE
    assert opened(openings, other) == 0


async def test_few_addresses_are_remembered() -> None:
    openings = Openings()
    for number in range(MAX_ADDRESSES + 10):
        openings.known(f"10.0.{number // 256}.{number % 256}")
        openings.may_open(f"10.1.{number // 256}.{number % 256}")
    assert len(openings._known) == len(openings._strange) == MAX_ADDRESSES
