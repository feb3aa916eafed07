"""What is asked of a panel is asked of each of its members, and what is asked of one result reaches it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from daemon.panels.test_panels import HUMAN, Daemon, daemon
from sublet.daemon.api.delegation_views import ChangeSet
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.api.panels import ApplyMember, CreatePanel, WaitForPanel
from sublet.daemon.api.results import Applied, ApplyResult
from sublet.protocol.panels import DEFAULT_CHECK_SECONDS

__all__ = ["daemon"]

pytestmark = pytest.mark.anyio

OPTIONS: dict[str, Any] = {
    "description": "a few words",
    "access_mode": "ro",
    "include": ["src/**"],
    "exclude": ["*.log"],
    "git": "ro",
    "reveal": [".env.example"],
    "unlock": ["Makefile"],
    "ttl_seconds": 77,
    "max_total_bytes": 1_000,
    "max_files": 10,
    "max_file_bytes": 100,
    "require_enforced": ["memory"],
    "transport": "archive",
    "wait_for_peer": True,
    "deny": ["file.write"],
    "keep_all": True,
    "no_delete": True,
}
"""Options that a panel has of a delegation's; ``only`` excludes ``deny``, and ``writable`` a lease for reading."""


@pytest.mark.parametrize(
    "options", [OPTIONS, {"only": ["file.*"], "writable": ["docs"], "access_mode": "rw"}], ids=["most", "the rest"]
)
async def test_each_option_is_asked_of_each_member(daemon: Daemon, options: dict[str, Any]) -> None:
    async with daemon.running():
        await daemon.create(**options)
        assert len(daemon.asked) == 3
        for asked in daemon.asked:
            assert isinstance(asked, CreateDelegation)
            assert {name: getattr(asked, name) for name in options} == options
            assert (asked.result_mode, asked.prompt, asked.workspace_dir) == ("staged", "mend", "/w")


def test_further_directories_and_idle_options_are_refused() -> None:
    asked = {"workspace_dir": "/w", "to": "capability:x", "members": 3, "prompt": "mend"}
    with pytest.raises(ValidationError, match="lends one directory"):
        CreatePanel.model_validate(asked | {"resources": [{"name": "more", "path": "/m"}]})
    for idle in ({"check_seconds": 7}, {"stop": "first_pass"}):
        with pytest.raises(ValidationError, match="without check"):
            CreatePanel.model_validate(asked | idle)


async def test_the_time_of_a_check_is_that_of_the_panel(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    run = daemon.run

    async def noting(command: str, seconds: float, copy: Any) -> Any:
        given.append(seconds)
        return await run(command, seconds, copy)

    monkeypatch.setattr(daemon, "run", noting)
    async with daemon.running():
        for seconds in (7, None):
            panel = await daemon.create(check="make", **({} if seconds is None else {"check_seconds": seconds}))
            daemon.codes = {one.delegation_id: 0 for one in panel.members}
            for one in panel.members:
                daemon.ended[one.delegation_id].set()
            await daemon.over(panel)
    assert given == [7] * 3 + [DEFAULT_CHECK_SECONDS] * 3


async def test_a_wait_ends_by_its_time_and_tells_how_it_stands(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def wait(_: str, timeout: float) -> None:
        waited.append(timeout)

    async with daemon.running():
        panel = await daemon.create()
        monkeypatch.setattr(daemon.runs, "wait", wait)
        found = await daemon.service.wait(WaitForPanel(panel_id=panel.panel_id, timeout=3), HUMAN)
    assert (waited, found.state) == ([3], "running")


async def test_how_a_result_is_applied_is_as_it_was_asked_for(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[ApplyResult] = []

    async def apply(asked: ApplyResult, _: str) -> Applied:
        applied.append(asked)
        counts = ChangeSet.model_validate({"status": "pending", "added": 1, "changed": 0, "deleted": 0})
        return Applied(delegation_id=asked.delegation_id, change_set=counts)

    async def may_write(*_: object) -> None:
        return

    monkeypatch.setattr(daemon, "apply", apply, raising=False)
    monkeypatch.setattr(daemon, "ask_to_write", may_write, raising=False)
    async with daemon.running():
        panel = await daemon.create()
        for one in panel.members:
            daemon.ended[one.delegation_id].set()
        await daemon.over(panel)
        for how in ({"partial": True}, {"allow_mass_deletion": True}, {}):
            await daemon.service.apply(ApplyMember(panel_id=panel.panel_id, member=2, **how), HUMAN)
    assert [(one.partial, one.allow_mass_deletion) for one in applied] == [(True, False), (False, True), (False, False)]
    assert {one.delegation_id for one in applied} == {panel.members[1].delegation_id}
