"""The daemon at a glance: what its owner did not choose is remarked, and what does not work is not shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sublet.daemon.config.daemon_config import DaemonConfig
from sublet.daemon.config.paths import resolve_home
from sublet.daemon.health import status as statuses
from sublet.daemon.health.stalls import Stalls
from sublet.daemon.health.status import Status, StatusParts
from sublet.daemon.net.last_ports import LastPorts
from sublet.daemon.process.kept_face import Place
from sublet.daemon.process.places import Places
from sublet.disk.set_aside import SetAside
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.tasks import Services
from support.jobs import command

pytestmark = pytest.mark.anyio


def place(address: str) -> Place:
    made = Place()
    made.address = address
    return made


async def answer(value: object) -> Any:
    return value


def parts(root: Path, *, a2a: int = 8642, web: str = "", bus: int = 7447, agents: Sequence[Any] = ()) -> StatusParts:
    """Return the parts of a daemon with the default configuration, of which the test chooses some."""
    given: dict[str, Any] = {
        "config": DaemonConfig(home=resolve_home({"SUBLET_HOME": str(root)})),
        "identity": SimpleNamespace(node_id="node-test", fingerprint="sha256:x"),
        "journal": SimpleNamespace(count_delegations=lambda: answer({"running": 2})),
        "services": Services(),
        "aside": SetAside(root),
        "places": Places(place(f"http://127.0.0.1:{a2a}"), place(""), place("/run/c.sock"), place(web)),
        "last_ports": LastPorts(web=8655),
        "bus_port": SimpleNamespace(number=bus, shown=f"tls/127.0.0.1:{bus}"),
        "offer": SimpleNamespace(agents=tuple(agents), now=lambda: tuple(agents), ids=lambda: [a.id for a in agents]),
        "peers": SimpleNamespace(list=list),
        "approver": SimpleNamespace(pinned=SimpleNamespace(kept=None, torn=False, public_key=None)),
        "messaging": SimpleNamespace(level=lambda: answer(2), remarks=list),
        "data_plane": SimpleNamespace(address=("127.0.0.1", 8622)),
        "slots": SimpleNamespace(in_use=1, capacity=4),
        "cages": SimpleNamespace(means="cgroups"),
        "confinement": lambda agent: SimpleNamespace(enforced={"files", "network"}),
        "mounts": SimpleNamespace(guard="fusectl"),
        "files": lambda: ["policy.json is gone"],
        "stalls": Stalls(),
        "homes": SimpleNamespace(remarks=list),
        "soundness": SimpleNamespace(remarks=list),
    }
    return StatusParts(**given)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what looks at this machine."""
    monkeypatch.setattr(statuses, "require_sandbox", lambda: None)
    monkeypatch.setattr(statuses, "approver_remarks", lambda pinned: [])
    monkeypatch.setattr(statuses, "unready_lines", lambda agents: [f"{agent.id} lacks its program" for agent in agents])


async def test_all_as_configured_has_no_remark_but_those_of_its_files(tmp_path: Path) -> None:
    view = await Status(parts(tmp_path)).view()
    assert view.remarks == ["policy.json is gone"]
    assert (view.a2a_url, view.sftp, view.slots, view.assignments_active) == (
        "http://127.0.0.1:8642",
        "127.0.0.1:8622",
        4,
        1,
    )
    assert (view.sandbox, view.enforced, view.delegations) == ("bubblewrap", [], {"running": 2})


async def test_ports_that_gave_way_are_told_each(tmp_path: Path) -> None:
    view = await Status(parts(tmp_path, a2a=40001, web="http://127.0.0.1:40002/", bus=40003)).view()
    assert [line.partition(",")[0] for line in view.remarks[:3]] == [
        "the default A2A port 8642 is taken by another program",
        "the default web port 8640 is taken by another program",
        "the bus of rooms is at port 40003",
    ]


async def test_an_agent_that_is_not_ready_and_what_was_set_aside_are_told(tmp_path: Path) -> None:
    made = parts(tmp_path, agents=[command()])
    for number in range(3):
        (tmp_path / f"bad{number}").write_text("x")
        made.aside.take(tmp_path / f"bad{number}", "it is none")
    view = await Status(made).view()
    assert "test lacks its program" in view.remarks
    assert sum("was set aside" in line for line in view.remarks) == 3
    assert view.enforced == ["files", "network"]


async def test_a_sandbox_that_does_not_work_holds_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[None] = []

    def fails() -> None:
        tried.append(None)
        raise SubletError(ErrorCode.DEP_MISSING, "no user namespaces")

    monkeypatch.setattr(statuses, "require_sandbox", fails)
    view = await Status(parts(tmp_path, agents=[command()])).view()
    assert view.sandbox == "none that works, so no agent is started: no user namespaces"
    assert (view.enforced, len(tried)) == ([], 1)
    unconfined = replace(
        parts(tmp_path), config=DaemonConfig(home=resolve_home({"SUBLET_HOME": str(tmp_path)}), unsandboxed=True)
    )
    assert (await Status(unconfined).view()).sandbox == "none: agents run unconfined"
    assert len(tried) == 1, "what is not wanted is not tried"


def test_the_ports_for_the_next_start_are_those_of_now(tmp_path: Path) -> None:
    assert Status(parts(tmp_path)).ports() == LastPorts(a2a=8642, sftp=8622, web=8655, bus=7447)
    public = cast(
        "Any", DaemonConfig(home=resolve_home({"SUBLET_HOME": str(tmp_path)}), public_url="https://me.example")
    )
    found = Status(replace(parts(tmp_path, web="http://127.0.0.1:1/"), config=public)).ports()
    assert (found.a2a, found.web) == (None, 1), "the configured one stays behind a public address"
