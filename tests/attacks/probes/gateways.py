"""Gateways that die, talk nonsense or break off in the middle; those of others go on."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from app.test_running import Running, config, daemon
from attacks.probe import FailureProbe, Probe
from sublet.daemon.api.gateways import GET_GATEWAY, LIST_GATEWAYS, SEND_TO_GATEWAY, OneGateway, SendToGateway
from sublet.daemon.api.operation import Nothing
from sublet.protocol.errors import SubletError

SECONDS = 60.0
ECHO = """
import json, sys
print("nonsense", flush=True)
print("words", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "request":
        print(json.dumps({"type": "ack", "requestId": message["requestId"], "accepted": True}), flush=True)
        if message["message"] == "die":
            sys.exit(3)
        print(json.dumps({"type": "result", "requestId": message["requestId"], "success": True}), flush=True)
"""
DEAF = "import sys\nfor line in sys.stdin: pass"
INPUT = {"type": "input", "requestId": "i1", "message": "echo hello", "blocking": True}


def _add(directory: Path, name: str, **more: Any) -> None:
    place = directory / "gateways" / name
    place.mkdir(mode=0o700, parents=True)
    found = {"id": name, "name": name, "version": "1", "description": "d", "direction": "duplex", **more}
    (place / "module.json").write_text(json.dumps(found))


async def _connected(running: Running) -> None:
    with anyio.fail_after(SECONDS):
        while "connected" not in [
            one.state for one in (await running.control.call(LIST_GATEWAYS, Nothing())).gateways if one.id == "echo"
        ]:
            await anyio.sleep(0.02)


async def _program(running: Running) -> None:
    """Let a program of ours die; it is started again and delivers."""
    await _connected(running)
    try:
        await running.control.call(SEND_TO_GATEWAY, SendToGateway(gateway_id="echo", message="die"))
    except SubletError:
        await anyio.sleep(0.05)
    else:
        raise AssertionError("it has died")
    await _connected(running)
    await running.control.call(SEND_TO_GATEWAY, SendToGateway(gateway_id="echo", message="x"))


async def _told_to_be_unwell(running: Running) -> None:
    """Let a program of ours answer nothing; it is ended and started again, and the others go on."""
    with anyio.fail_after(SECONDS):
        while not (await running.control.call(GET_GATEWAY, OneGateway(gateway_id="deaf"))).health.startswith("failed"):
            await anyio.sleep(0.02)


async def _stream(url: str, headers: Mapping[str, str]) -> None:
    """Break streams off and send what is no protocol; the next one is answered."""
    async with httpx.AsyncClient(timeout=SECONDS) as client:
        async with client.stream("GET", f"{url}/stream", headers=headers):
            pass
        async with client.stream("GET", f"{url}/stream", headers=headers) as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == ": connected"
            bad = await client.post(f"{url}/messages", headers=headers, content=b"\xff[[[\n{}\n")
            assert bad.status_code in (202, 400)
            assert (await client.post(f"{url}/messages", headers=headers, json=INPUT)).status_code == 202
            left = {"requestId", '"event"'}  # the answer, and what the feed tells of it
            async for line in lines:
                if line.startswith("data: "):
                    left -= {one for one in left if one in line}
                if not left:
                    break
            assert not left


async def _socket(url: str, headers: Mapping[str, str]) -> None:
    """Break off, send bytes where text is wanted and what is no protocol; the next one is answered."""
    for said in (b"\0\xff", "[[["):
        async with connect(url, additional_headers=headers) as socket:
            await socket.send(said)
            if isinstance(said, bytes):
                with suppress(ConnectionClosed):
                    await socket.recv()
    async with connect(url, additional_headers=headers) as socket:
        await socket.send(json.dumps(INPUT))
        assert "i1" in str(await socket.recv())


async def _gateways() -> None:
    with tempfile.TemporaryDirectory(prefix="gw") as base:
        made = config(Path(base) / "a")
        place = Path(made.home.config_dir)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        python = shutil.which("python3", path="/usr/bin:/bin") or "python3"
        again = {"maxAttempts": 5, "backoffMs": 20}
        _add(place, "echo", protocol="stdio", process={"command": python, "args": ["-c", ECHO]}, restart=again)
        health = {"intervalMs": 20, "timeoutMs": 20, "failures": 2}
        deaf = {"command": python, "args": ["-c", DEAF]}
        _add(place, "deaf", protocol="stdio", direction="output", process=deaf, health=health, restart=again)
        _add(place, "web", protocol="http", feed=[{"kinds": ["route_decided"]}])
        _add(place, "sock", protocol="websocket")
        async with daemon(Path(base) / "a", config(Path(base) / "a")) as running:
            with anyio.fail_after(SECONDS):
                await _program(running)
                await _told_to_be_unwell(running)
                for name, work in (("web", _stream), ("sock", _socket)):
                    shown = await running.control.call(GET_GATEWAY, OneGateway(gateway_id=name))
                    assert shown.url is not None
                    await work(shown.url, {"Authorization": f"Bearer {shown.token}"})


PROBES: Sequence[Probe] = (
    FailureProbe(
        name="gateways: that die, talk nonsense and break off",
        covers=(
            "daemon.modules.gateways:Gateways._watched",
            "daemon.modules.gateway_server:GatewayServer._next",
            "daemon.modules.gateway_server:GatewayServer._websocket",
            "supervisor.gateways.stdio:StdioGateway._once",
            "supervisor.gateways.stdio:StdioGateway.run",
        ),
        throw=_gateways,
    ),
)
