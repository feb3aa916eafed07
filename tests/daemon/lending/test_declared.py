"""How a peer's agents were held is known from its newest ACCEPT, in this process and in the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.daemon.lending import declared as declared_module
from sublet.daemon.lending.declared import DeclaredSandboxes
from sublet.daemon.storage.journal import Journal
from sublet.protocol.ids import fingerprint
from support.lender import lender
from support.scripted_link import BOB, accepting

pytestmark = pytest.mark.anyio
BOBS = fingerprint(BOB.public_key)


def holding(*, allow_network: bool) -> dict[str, bool]:
    return {"cwd_only": True, "allow_network": allow_network, "allow_exec": True}


async def networks(declared: DeclaredSandboxes, *agents: str, of: str = BOBS) -> list[bool | None]:
    """Return for each agent whether it is said to have the network; None where nothing is said of it."""
    return [None if one is None else one.allow_network for one in await declared.of(of, list(agents))]


async def test_the_newest_accept_of_an_agent_is_what_is_told_of_it(tmp_path: Path) -> None:
    async with lender(tmp_path) as side:
        declared = side.delegator.declared
        assert await networks(declared, "first", "second") == [None, None]
        for allow_network in (True, False):
            side.link.answer = accepting(sandbox_profile=holding(allow_network=allow_network))
            delegation = await side.running()
            # Who names no agent gets the peer's first.
            assert await networks(declared, "first", "second") == [allow_network, None]
            assert await networks(DeclaredSandboxes(side.journal), "first", "second") == [allow_network, None]
            side.link.done(delegation)
            await side.settled(delegation)
        assert await networks(declared, "first", of="SHA256:somebody") == [None]


async def test_records_are_read_once_and_what_is_remembered_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lender(tmp_path) as side:
        side.link.answer = accepting(sandbox_profile=holding(allow_network=True))
        await side.running()
        [record] = await side.journal.list_delegations()
        declared = DeclaredSandboxes(side.journal)
        assert await networks(declared, "first") == [True]

        async def read_again(*_: object, **__: object) -> None:
            raise AssertionError

        monkeypatch.setattr(Journal, "list_delegations", read_again)
        monkeypatch.setattr(declared_module, "MAX_DECLARED", 2)
        for agent in ("a", "b"):
            declared.note(record.model_copy(update={"agent": agent}))
        assert await networks(declared, "first", "a", "b") == [None, True, True]
