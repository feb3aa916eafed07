"""What the desk answers by itself, without a connection."""

from __future__ import annotations

import pytest

from sublet.office_server import desk as module
from sublet.office_server.desk import MAX_TOKENS, Desk
from sublet.offices.calls import Calls
from sublet.offices.rules import MAX_WAITING, Offices
from support.office_client import OURS, Guard, Tokens

pytestmark = pytest.mark.anyio


def desk(offices: Offices | None = None) -> Desk:
    return Desk(offices or Offices(), Calls(), Tokens.usual(), Guard())


def test_so_many_tokens_and_no_more_and_each_of_them_is_one() -> None:
    assert desk().connected("1", " ".join(["1-bob"] * MAX_TOKENS))
    assert not desk().connected("1", " ".join(["1-bob"] * (MAX_TOKENS + 1)))
    assert not desk().connected("1", "1-bob  2-bob")


def test_a_token_has_few_connections_that_sit_nowhere() -> None:
    offices = Offices()
    one = desk(offices)
    assert all(one.connected(str(number), "1-bob") for number in range(MAX_WAITING + 1))
    assert offices.member("0") is None
    assert offices.member("1") is not None


async def test_who_asks_too_much_at_once_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HANDLED", 0)
    assert await desk().handle("1", "server:list_room", []) == {
        "code": 429,
        "message": "Too many requests are under way",
    }


async def test_a_failure_of_ours_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("made up")

    offices = Offices()
    monkeypatch.setattr(offices, "leave", broken)
    answer = await desk(offices).handle("1", "server:leave_office", [{"office_id": OURS}])
    assert answer == {"code": 500, "message": "Internal error"}
