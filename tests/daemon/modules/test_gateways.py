"""Every field of a gateway's ``module.json`` does what it says, with programs that run."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from sublet.daemon.api.gateways import GET_GATEWAY, LIST_GATEWAYS, SEND_TO_GATEWAY, START_GATEWAY, STOP_GATEWAY
from sublet.daemon.modules.gateway_feed import GatewayFeed
from sublet.daemon.modules.gateway_service import GatewayService
from sublet.daemon.modules.gateways import Gateways
from sublet.daemon.operations.table import OperationTable
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.gateway import GatewayInput
from sublet.supervisor.gateways.module_file import GatewayModule
from support.decisions import KeptDecisions, gatekeeper
from support.recorder import Recorder

pytestmark = pytest.mark.anyio
ME = Subject("human")
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or "python3"
ECHO = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "request":
        told = {"said": message["message"], "args": sys.argv[1:], "secret": os.environ.get("GW_SECRET")}
        told["mode"] = message["deliveryMode"]
        refused = message["message"] == "no"
        ack = {"type": "ack", "requestId": message["requestId"], "accepted": not refused, "reason": "not today"}
        print(json.dumps(ack), flush=True)
        answer = {"type": "result", "requestId": message["requestId"], "success": True, "output": told}
        print(json.dumps(answer), flush=True)
"""
ENDS = "open('runs', 'a').write('x')"
DEAF = "import sys; sys.stdin.read()"


@dataclass
class Kept:
    """Gateways that run, and the operations on them."""

    gateways: Gateways
    table: OperationTable
    sandbox: Recorder

    async def call(self, operation: Any, **fields: Any) -> Any:
        return await self.table.call(operation, operation.request(**fields), ME)

    async def until(self, told: Callable[[Any], bool]) -> Any:
        with anyio.fail_after(30):
            while not told(found := await self.call(GET_GATEWAY, gateway_id="gate")):
                await anyio.sleep(0.02)
        return found


@asynccontextmanager
async def kept(root: Path, program: str = ECHO, **more: Any) -> AsyncIterator[Kept]:
    """Run one gateway called gate."""
    process = {"command": PYTHON, "args": ["-c", program, "loud"], **more.pop("process", {})}
    named = {"id": "gate", "name": "Gate", "version": "1.2", "description": "our chat", "direction": "duplex"}
    directory = root / "gateways" / "gate"
    directory.mkdir(parents=True)
    (directory / "module.json").write_text(json.dumps({**named, "protocol": "stdio", "process": process, **more}))
    sandbox = Recorder()
    store = await Store.open(root / "sublet.db")
    journal = Journal(store)
    gate = gatekeeper(journal, log=KeptDecisions())
    gateways = Gateways(root / "gateways", root, root / "scratch", sandbox, GatewayFeed(journal, gate, root / "feed"))

    async def handle(module: GatewayModule, given: GatewayInput) -> str:
        return given.message

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(gateways.serve, handle)
            with anyio.fail_after(30):
                while not gateways.views()[0]:
                    await anyio.sleep(0.01)
            yield Kept(gateways, OperationTable(GatewayService(gate, gateways)), sandbox)
            group.cancel_scope.cancel()
    finally:
        await store.close()


async def test_a_gateway_is_listed_and_run_as_its_module_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GW_SECRET", "s3")
    mode = {"supported": ["async", "sync"], "default": "async"}
    process = {"environment": ["GW_SECRET"], "network": True}
    async with kept(tmp_path, mode=mode, process=process) as found:
        (listed,) = (await found.call(LIST_GATEWAYS)).gateways
        assert (listed.id, listed.name, listed.version, listed.description) == ("gate", "Gate", "1.2", "our chat")
        assert (listed.direction, listed.protocol, listed.modes) == ("duplex", "stdio", ["async", "sync"])
        await found.until(lambda one: one.state == "connected")
        quick = await found.call(SEND_TO_GATEWAY, gateway_id="gate", message="hello")
        assert quick.output is None
        sent = await found.call(SEND_TO_GATEWAY, gateway_id="gate", message="hello", mode="sync")
        assert sent.output == {"said": "hello", "args": ["loud"], "secret": "s3", "mode": "sync"}
        assert found.sandbox.launches[0].allow_network
        with pytest.raises(SubletError, match="not today"):
            await found.call(SEND_TO_GATEWAY, gateway_id="gate", message="no")
        assert (await found.call(STOP_GATEWAY, gateway_id="gate")).state == "stopped"


async def test_one_that_is_off_is_not_started_and_one_by_hand_only_so(tmp_path: Path) -> None:
    async with kept(tmp_path / "off", enabled=False) as off:
        with pytest.raises(SubletError) as refused:
            await off.call(START_GATEWAY, gateway_id="gate")
        assert refused.value.code is LocalCode.UNAVAILABLE
        assert off.gateways.names() == []
    async with kept(tmp_path / "by-hand", load="manual") as by_hand:
        assert by_hand.sandbox.launches == []
        with pytest.raises(SubletError, match="is not connected"):
            await by_hand.call(SEND_TO_GATEWAY, gateway_id="gate", message="hello")
        await by_hand.call(START_GATEWAY, gateway_id="gate")
        await by_hand.until(lambda one: one.state == "connected")


async def test_one_that_ends_is_started_as_often_as_its_module_says(tmp_path: Path) -> None:
    restart = {"maxAttempts": 2, "backoffMs": 10}
    async with kept(tmp_path, ENDS, restart=restart) as found:
        ended = await found.until(lambda one: one.state == "failed")
    assert "it was started 3 times" in ended.detail
    assert len(found.sandbox.launches) == 3


async def test_one_that_is_started_again_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    sleep = anyio.sleep

    async def noted(seconds: float) -> None:
        waited.append(seconds)
        await sleep(0)

    monkeypatch.setattr("sublet.supervisor.gateways.stdio.anyio.sleep", noted)
    async with kept(tmp_path, ENDS, restart={"maxAttempts": 2, "backoffMs": 70}) as found:
        await found.until(lambda one: one.state == "failed")
    assert {0.07, 0.14} <= set(waited)


async def test_one_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    health = {"intervalMs": 10, "timeoutMs": 20, "failures": 2}
    async with kept(tmp_path, DEAF, health=health, restart={"maxAttempts": 0, "backoffMs": 10}) as found:
        ended = await found.until(lambda one: one.state == "failed")
    assert "it failed 2 health checks" in ended.detail


async def test_health_is_asked_for_as_its_module_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    async def check(session: Any, timeout_ms: int) -> str:
        asked.append(timeout_ms)
        return "deaf"

    monkeypatch.setattr("sublet.daemon.modules.gateways.GatewaySession.check", check)
    health = {"intervalMs": 15, "timeoutMs": 25, "failures": 1}
    async with kept(tmp_path, DEAF, health=health, restart={"maxAttempts": 0, "backoffMs": 10}) as found:
        assert found.gateways.get("gate").module.health is not None
        with anyio.fail_after(10):
            while not asked:
                await anyio.sleep(0.005)
    assert asked[0] == 25


async def test_what_a_module_answers_as_an_object_is_told_as_json(tmp_path: Path) -> None:
    """By ``/hub``, whose answer is a text."""
    async with kept(tmp_path) as found:
        await found.until(lambda one: one.state == "connected")
        told = await found.gateways.send("gate", "hellö", cast("Any", SimpleNamespace(request_id="r1")))
        assert json.loads(told)["said"] == {"text": "hellö", "requestId": "r1"}
        assert "hellö" in told
