"""Every field of a capability's ``module.json`` and of a request about one does what it says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from sublet.daemon.api.capabilities import INSPECT_CAPABILITY, LIST_CAPABILITIES, RUN_CAPABILITY, VERIFY_CAPABILITY
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.modules.capabilities import CapabilityRegistry, CapabilityService
from sublet.daemon.operations.table import OperationTable
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.policy.decision import Action, Subject
from sublet.protocol.errors import SubletError
from sublet.supervisor.capabilities.runs import CapabilityRuns
from support.decisions import KeptDecisions, gatekeeper
from support.recorder import Recorder

pytestmark = pytest.mark.anyio
ME = Subject("human")
TOOL = """#!/bin/sh
case "$*" in
  "are you there") exit 3;;
  "how") echo "usage: tool WORDS";;
  "which") echo "tool 9";;
  *) echo "$* $(cat) $TOOL_KEY";;
esac
"""


@dataclass
class Begins:
    """Lets every call begin that policy allows."""

    gate: Gatekeeper

    async def begin(self, call: Any, missing: str) -> Any:
        await self.gate.ask(ME, Action.CAPABILITY_RUN, "capability.tool")
        return cast("Any", type("Begun", (), {"use": "granted"})())

    async def ended(self, begun: Any, error: str | None) -> None:
        """Nobody looks."""


@dataclass
class Kept:
    """One capability, and the operations on it."""

    table: OperationTable
    sandbox: Recorder

    async def call(self, operation: Any, **fields: Any) -> Any:
        return await self.table.call(operation, operation.request(**fields), ME)


@asynccontextmanager
async def kept(root: Path, **more: Any) -> AsyncIterator[Kept]:
    module = {"id": "tool", "name": "Tool", "version": "9", "description": "says words", "command": "./tool", **more}
    directory = root / "capabilities" / "tool"
    directory.mkdir(parents=True)
    (directory / "tool").write_text(TOOL)
    (directory / "tool").chmod(0o755)
    (directory / "about.md").write_text("What it is for.\n")
    (directory / "commands.md").write_text("How it is called.\n\n" + "More of it.\n\n" * 100)
    (directory / "module.json").write_text(json.dumps(module))
    sandbox = Recorder()
    store = await Store.open(root / "sublet.db")
    registry = CapabilityRegistry([root / "capabilities"])
    registry.use(registry.read())
    gate = gatekeeper(Journal(store), log=KeptDecisions())
    runs = CapabilityRuns(sandbox, root / "scratch", environ={"PATH": "/usr/bin:/bin", "TOOL_KEY": "k3y"})
    service = CapabilityService(gate, cast("Any", Begins(gate)), registry, runs, cast("Any", None))
    try:
        yield Kept(OperationTable(service), sandbox)
    finally:
        await store.close()


async def test_a_capability_is_called_as_its_module_says(tmp_path: Path) -> None:
    words = {"items": {"type": "string", "maxLength": 5}}
    more = {"defaultArgs": ["say"], "arguments": words, "environment": ["TOOL_KEY"], "network": True}
    async with kept(tmp_path, **more) as one:
        ended = await one.call(RUN_CAPABILITY, capability_id="tool", args=["hello"], stdin="you")
        assert ended.stdout.split() == ["say", "hello", "you", "k3y"]
        with pytest.raises(SubletError):
            await one.call(RUN_CAPABILITY, capability_id="tool", args=["far too long"])
        assert one.sandbox.launches[0].allow_network


async def test_a_capability_is_checked_as_its_module_says(tmp_path: Path) -> None:
    more = {"availabilityCheckArgs": ["are you there"], "helpArgs": ["how"], "versionArgs": ["which"]}
    async with kept(tmp_path, **more) as one:
        checked = await one.call(VERIFY_CAPABILITY, capability_id="tool")
    told = {check.name: (check.ok, check.detail) for check in checked.checks}
    assert not told["availability"][0]
    assert told["help"] == (True, "usage: tool WORDS")
    assert told["version"] == (True, "tool 9")


async def test_a_capability_is_told_of_as_far_as_is_asked(tmp_path: Path) -> None:
    async with kept(tmp_path, readmeFile="about.md", cliDocFile="commands.md", helpArgs=["how"]) as one:
        (listed,) = (await one.call(LIST_CAPABILITIES)).capabilities
        assert (listed.id, listed.name, listed.version, listed.description) == ("tool", "Tool", "9", "says words")
        told = [(await one.call(INSPECT_CAPABILITY, capability_id="tool", level=level)).text for level in (1, 2, 3)]
        assert "What it is for." in told[0] + told[1] + told[2]
        assert "usage: tool WORDS" not in told[0]
        assert "usage: tool WORDS" in told[1]
        assert "How it is called." in told[2]
        short = await one.call(INSPECT_CAPABILITY, capability_id="tool", level=3, budget=16)
        assert len(short.text) < len(told[2])


async def test_one_that_is_off_is_not_there(tmp_path: Path) -> None:
    async with kept(tmp_path, enabled=False) as one:
        assert [view.enabled for view in (await one.call(LIST_CAPABILITIES)).capabilities] == [False]
        with pytest.raises(SubletError, match="there is no capability"):
            await one.call(RUN_CAPABILITY, capability_id="tool", args=["hello"])


async def test_a_run_ends_in_time(tmp_path: Path) -> None:
    async with kept(tmp_path, command="sleep", timeoutSeconds=0.2) as one:
        ended = await one.call(RUN_CAPABILITY, capability_id="tool", args=["8"])
    assert "time" in (ended.reason or "")
