"""The operations on offices: policy is asked, members are sent away at once, and what is told is what there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from sublet.daemon.api.offices import CreateOffice, CreateOfficeToken, KickMember, OneOffice
from sublet.daemon.api.operation import Nothing
from sublet.daemon.config.daemon_config import DaemonConfig, Listen
from sublet.daemon.config.paths import resolve_home
from sublet.daemon.offices.service import OfficeParts, OfficeService
from sublet.daemon.offices.store import OfficeStore
from sublet.offices.calls import Calls
from sublet.offices.rules import Offices
from sublet.offices.seats import Cut, Effect
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.offices.names import Role
from sublet.protocol.offices.requests import Join
from support.approvals import HUMAN, Desk, desk

pytestmark = pytest.mark.anyio


class Sent:
    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def dismiss(self, effects: Sequence[Effect]) -> None:
        self.effects += effects


class Place:
    address = "http://127.0.0.1:1"

    async def listening(self) -> str:
        return self.address


async def service(side: Desk, offices: Offices, sent: Sent) -> tuple[OfficeService, OfficeStore]:
    store = await OfficeStore.load(side.journal)
    parts = OfficeParts(side.gatekeeper, store, offices, Calls(), sent, Place(), lambda: None)
    return OfficeService(parts), store


async def test_an_office_from_its_opening_to_its_end(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        offices, sent = Offices(), Sent()
        served, store = await service(side, offices, sent)
        made = await served.create_office(CreateOffice(name="desk"), HUMAN)
        asked = CreateOfficeToken(office="desk", role=Role.COMPUTER, name="bob")
        token = await served.create_token(asked, HUMAN)
        assert (token.office_id, token.url) == (made.office_id, Place.address)
        seat = store.find(token.token)
        assert seat is not None
        offices.connected("1", [seat])
        offices.join("1", Join(seat.role, seat.name, seat.office_id))
        listed = await served.list_offices(Nothing(), HUMAN)
        assert [(one.name, one.connected) for one in listed.offices[0].members] == [("bob", True)]
        assert token.token not in listed.model_dump_json()
        gone = await served.kick_member(KickMember(office="desk", name="bob"), HUMAN)
        assert gone.was_connected
        assert sent.effects == [Cut("1", "a person has sent it away")]
        assert store.find(token.token) is None
        await served.close_office(OneOffice(office=made.office_id), HUMAN)
        assert (await served.list_offices(Nothing(), HUMAN)).offices == []


async def test_a_replaced_token_ends_its_connection(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        offices, sent = Offices(), Sent()
        served, store = await service(side, offices, sent)
        await served.create_office(CreateOffice(name="desk"), HUMAN)
        old = await served.create_token(CreateOfficeToken(office="desk", role=Role.AGENT, name="a"), HUMAN)
        seat = store.find(old.token)
        assert seat is not None
        offices.connected("1", [seat])
        await served.create_token(CreateOfficeToken(office="desk", role=Role.AGENT, name="a", replace=True), HUMAN)
        assert sent.effects == [Cut("1", "its token was replaced")]


async def test_offices_are_a_persons_to_open_and_close(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        served, store = await service(side, Offices(), Sent())
        for caller in (Subject("mcp", "claude"), Subject("office", "desk/alice"), Subject("agent", "a")):
            with pytest.raises(SubletError) as refused:
                await served.create_office(CreateOffice(name="desk"), caller)
            assert refused.value.code is LocalCode.POLICY_DENIED
            with pytest.raises(SubletError):
                await served.list_offices(Nothing(), caller)
        assert store.list() == []


def test_what_config_json_says_of_offices_is_in_force(tmp_path: Path) -> None:
    home = resolve_home({"SUBLET_HOME": str(tmp_path)})
    home.make()
    assert DaemonConfig(home=home).offices == Listen("127.0.0.1", 8648, chosen=False)
    assert DaemonConfig(home=home).office_protocol == "0.4.0"
    said = {"offices": {"listen": "127.0.0.1:7", "protocol_version": "0.5.1"}}
    Path(home.config_dir, "config.json").write_text(json.dumps(said))
    config = DaemonConfig(home=home)
    assert (config.offices, config.office_protocol) == (Listen("127.0.0.1", 7, chosen=True), "0.5.1")
    for wrong in ({"listen": "nowhere"}, {"protocol_version": "0.4"}):
        Path(home.config_dir, "config.json").write_text(json.dumps({"offices": wrong}))
        with pytest.raises(SubletError):
            DaemonConfig(home=home)
