"""The relay's process, run in this one: made once, run once, told by its directory, stopped in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from sublet.app.relay import RelayPlaces, RelayReady, init_relay, names_of, revoke_name, run_relay
from sublet.daemon.rooms.relay_desk import RelayDesk, RelayRefused
from sublet.messaging.relay.settings import RelaySettings
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.relay.requests import RequestAction
from support.relay_accounts import DOMAIN, Client

pytestmark = pytest.mark.anyio
SETTINGS = RelaySettings(domain=DOMAIN, hosts=["127.0.0.1"], slots=4)
ANYWHERE = RelayPlaces("127.0.0.1", 0)


@asynccontextmanager
async def running(directory: Path, places: RelayPlaces = ANYWHERE) -> AsyncIterator[RelayReady]:
    told: asyncio.Queue[RelayReady] = asyncio.Queue()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run_relay(directory, places, told.put_nowait))
        with anyio.fail_after(60):
            yield await told.get()
            os.kill(os.getpid(), signal.SIGTERM)
            await task


async def test_a_relay_is_made_once_and_its_keys_are_private(tmp_path: Path) -> None:
    authority = init_relay(tmp_path / "r", SETTINGS)
    assert authority.read_text().startswith("-----BEGIN CERTIFICATE")
    assert (tmp_path / "r").stat().st_mode & 0o077 == 0
    for name in ("authority.key", "server.key", "relay.key"):
        assert (tmp_path / "r" / name).stat().st_mode & 0o077 == 0
    with pytest.raises(SubletError) as twice:
        init_relay(tmp_path / "r", SETTINGS)
    assert twice.value.code is LocalCode.CONFLICT
    (tmp_path / "file").touch()
    with pytest.raises(SubletError) as elsewhere:
        init_relay(tmp_path / "file" / "r", SETTINGS)
    assert elsewhere.value.code is LocalCode.UNAVAILABLE
    with pytest.raises(SubletError) as nothing:
        await run_relay(tmp_path / "none", ANYWHERE, lambda _: None)
    assert nothing.value.code is LocalCode.NOT_FOUND


async def test_it_registers_names_is_told_by_its_directory_and_stops_in_order(tmp_path: Path) -> None:
    directory, alice = tmp_path / "r", Client("alice")
    authority = init_relay(directory, SETTINGS)
    async with running(directory) as told:
        assert (told.domain, told.level, told.tiers, told.pid) == (DOMAIN, 0, [1], os.getpid())
        assert told.authority == str(authority)
        port = int(told.listen.rpartition(":")[2])
        assert told.registration == f"https://127.0.0.1:{port + 1}"
        desk = RelayDesk(told.registration, authority)
        assert await desk.domain() == DOMAIN
        given = await desk.admit(RequestAction.REGISTER, alice.request())
        assert given.record.key == alice.public
        assert await desk.record("alice") == given.record
        with pytest.raises(RelayRefused):
            await desk.record("bob")
        with pytest.raises(SubletError, match="can't be asked"):
            await RelayDesk(told.registration, None).domain()
        with pytest.raises(SubletError) as again:
            await run_relay(directory, ANYWHERE, lambda _: None)
        assert again.value.code is LocalCode.ALREADY_RUNNING
        settings = directory / "relay.json"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"registration": "closed"}))
        with anyio.fail_after(20):
            while True:
                try:
                    await desk.admit(RequestAction.REGISTER, Client(f"n{time.monotonic_ns()}").request())
                except RelayRefused as refused:
                    if refused.said == "PERMISSION_DENIED":
                        break
                await anyio.sleep(0.05)
        settings.write_text("{")
        await anyio.sleep(0.5)
        assert await desk.domain() == DOMAIN, "what can't be read changes nothing"
        settings.write_text(SETTINGS.model_dump_json())
        await asyncio.to_thread(revoke_name, directory, "alice")
        with anyio.fail_after(20):
            while not (await desk.record("alice")).revoked:
                await anyio.sleep(0.05)
        with pytest.raises(SubletError) as unknown:
            await asyncio.to_thread(revoke_name, directory, "nobody")
        assert unknown.value.code is LocalCode.NOT_FOUND
        began = time.monotonic()
    assert time.monotonic() - began < 30
    listed = names_of(directory)
    assert (listed[0]["name"], listed[0]["revoked"]) == ("alice", True)
    async with running(directory) as told:
        assert (await RelayDesk(told.registration, authority).record("alice")).revoked


async def test_a_place_that_is_taken_is_an_error_and_the_ports_have_tls_alone(tmp_path: Path) -> None:
    directory = tmp_path / "r"
    authority = init_relay(directory, SETTINGS)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        with pytest.raises(SubletError) as refused:
            await run_relay(directory, RelayPlaces("127.0.0.1", 0, ("127.0.0.1", port)), lambda _: None)
        assert refused.value.code is LocalCode.UNAVAILABLE
    async with running(directory, RelayPlaces("127.0.0.1", 0, ("127.0.0.1", 0))) as told:
        port = int(told.registration.rpartition(":")[2])

        def plain() -> bytes:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as made:
                made.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                return made.recv(100)

        assert not (await asyncio.to_thread(plain)).startswith(b"HTTP")
        context = ssl.create_default_context(cafile=str(authority))

        def named(host: str) -> str | None:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=10) as made,
                context.wrap_socket(made, server_hostname=host) as tls,
            ):
                return tls.version()

        assert await asyncio.to_thread(named, DOMAIN) == "TLSv1.3"
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(named, "other.test")


async def test_damaged_certificates_are_named(tmp_path: Path) -> None:
    directory = tmp_path / "r"
    init_relay(directory, SETTINGS)
    (directory / "authority.key").write_text("x")
    with pytest.raises(SubletError, match="can't be used") as refused:
        await run_relay(directory, ANYWHERE, lambda _: None)
    assert refused.value.code is LocalCode.UNAVAILABLE
