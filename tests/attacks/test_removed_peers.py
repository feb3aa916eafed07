"""A peer that is removed has nothing any more, whatever it was called and whatever was under way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sublet.protocol.errors import LocalCode, SubletError
from support.daemons import two_daemons, wait_for
from support.lender import lender as lending
from support.scripted_link import BOB

pytestmark = pytest.mark.anyio


def test_a_peer_that_got_another_name_loses_its_leases_with_the_new_one(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with two_daemons(tmp_path) as (lender, worker):
        script = "touch began; while :; do date >> log; sleep 0.1; done"
        made = lender.json("delegate", str(project), "--to", "bob", script, "--background")["delegation_id"]
        wait_for(lambda: (project / "began").exists())
        lender.run("peers", "add", worker.json("pair")["link"], "--name", "robert")
        lender.run("peers", "remove", "robert")
        assert lender.json("output", made, check=None)["state"] == "cancelled"


async def test_nothing_begins_with_a_peer_that_was_removed_since_it_was_looked_up(tmp_path: Path) -> None:
    async with lending(tmp_path) as side:
        for gone in (replace(BOB, name="carol"), replace(BOB, public_key=b"c" * 32)):
            with pytest.raises(SubletError) as refused:
                await side.create(peer=gone)
            assert refused.value.code is LocalCode.PEER_UNKNOWN
