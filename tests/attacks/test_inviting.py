"""A peer that invites: under the ids of others' work, and without end."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sublet.daemon.working import assignments
from sublet.protocol.errors import SubletError
from sublet.protocol.messages import Error
from support.daemons import SHELL_AGENT, Daemon, pair, two_daemons, wait_for
from support.hostile_lender import HostileLender
from support.worker import ALICE, HERE, invite, worker

pytestmark = pytest.mark.anyio


def held(daemon: Daemon, delegation_id: str) -> list[str]:
    """Return what the journal says that a delegation holds."""
    [path] = daemon.home.rglob("sublet.db")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as store:
        query = "SELECT kind FROM resources WHERE owner = ? AND released_at IS NULL ORDER BY kind"
        return [row[0] for row in store.execute(query, (delegation_id,))]


async def test_nobody_invites_under_the_id_of_a_delegation_of_ours(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with two_daemons(tmp_path) as (lender, worker_side):
        # The worker is hostile, and paired the other way as well: it may delegate to the one who lends to it.
        lender.down()
        lender.up(agent=SHELL_AGENT)
        pair(worker_side, lender, "lender")
        made = lender.json("delegate", str(project), "--to", "bob", "sleep 600", "--background")
        name = made["delegation_id"]
        before = wait_for(lambda: "lease" in (found := held(lender, name)) and found)
        async with HostileLender(worker_side, lender) as hostile:
            _, answer = await hostile.link.invite(hostile.peer, hostile.invitation("echo mine", name))
            assert isinstance(answer, Error)
            assert held(lender, name) == before
        lender.run("cancel", name)


async def test_ended_work_of_a_peer_is_kept_by_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "MAX_ENDED_BYTES", 100_000)
    monkeypatch.setattr(assignments, "LOOK_AGAIN_BYTES", 30_000)
    async with worker(tmp_path) as side:
        for number in range(20):
            message = invite(f"dlg_{number}")
            message = message.model_copy(update={"task": message.task.model_copy(update={"prompt": "x" * 10_000})})
            await side.executor.invite(message, ALICE, source_host=HERE)
            await side.executor.cancel(message.delegation_id, ALICE)
        kept = [one.id for one in await side.journal.list_assignments()]
        assert "dlg_19" in kept
        assert "dlg_0" not in kept
        assert len(kept) <= 13
        assert (await side.journal.events.events_after(0, "dlg_0")).events == []
        with pytest.raises(SubletError, match="used before"):
            await side.executor.invite(invite("dlg_19"), ALICE, source_host=HERE)
        await side.check_nothing_held()
