"""Invitations as they are named: by id, by name, by who invites, or by being the only one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sublet.cli.options.invitations import find_invitation, resolve_invitation
from sublet.daemon.api.invitations import InvitationView
from sublet.daemon.control.client import ControlClient
from sublet.protocol.errors import LocalCode, SubletError

pytestmark = pytest.mark.anyio


class Control:
    """Tells of invitations."""

    def __init__(self, *found: InvitationView) -> None:
        self._found = list(found)

    async def call(self, operation: Any, request: object) -> list[InvitationView]:
        assert operation.name == "invitations.list"
        return self._found


def invitation(room_id: str, name: str, answer: Any = "pending") -> InvitationView:
    return InvitationView(
        room_id=room_id, name=name, by="@human:bob", whom=[], members=[], member_count=0, answer=answer, at=""
    )


def control(*found: InvitationView) -> ControlClient:
    return cast(ControlClient, Control(*found))


async def test_the_only_one_that_waits_need_not_be_named() -> None:
    one, said = invitation("1", "Work"), invitation("2", "Lunch", "declined")
    assert await resolve_invitation(control(one, said), None) == one
    for found in ([], [said]):
        with pytest.raises(SubletError) as refused:
            await resolve_invitation(control(*found), None)
        assert refused.value.code is LocalCode.NOT_FOUND
    with pytest.raises(SubletError, match="2 invitations wait"):
        await resolve_invitation(control(one, invitation("3", "Plans")), None)


async def test_a_name_is_of_those_that_wait_and_an_id_of_all() -> None:
    one, said = invitation("1", "Work"), invitation("2", "Lunch", "declined")
    assert await find_invitation(control(one, said), "Work") == one
    assert await find_invitation(control(said), "Lunch") is None
    assert await find_invitation(control(one, said), "2") == said
    with pytest.raises(SubletError, match="2 invitations fit"):
        await find_invitation(control(one, invitation("3", "Work")), "Work")
