"""The registration port: what it answers, with which status, and to whom."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from sublet.messaging.relay.buckets import Buckets, Rate
from sublet.messaging.relay.desk import Desk
from sublet.messaging.relay.registry import Registry
from sublet.protocol.relay.requests import MAX_REQUEST_BYTES, RequestAction
from support.relay_accounts import DOMAIN, Client, make_registry

pytestmark = pytest.mark.anyio


def caller(
    registry: Registry, address: str = "192.0.2.1", rate: Rate | None = None, figures: Mapping[str, float] | None = None
) -> httpx.AsyncClient:
    desk = Desk(registry, Buckets(rate or Rate(1e9, 1e9)), lambda: True, lambda: figures or {})
    transport = httpx.ASGITransport(desk.app, client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="https://relay.test")


async def answer(client: httpx.AsyncClient, method: str, path: str, **more: Any) -> tuple[int, Any]:
    found = await client.request(method, path, **more)
    return found.status_code, found.json()


async def test_a_name_is_registered_renewed_looked_up_and_revoked(tmp_path: Path) -> None:
    registry, alice, eve = make_registry(tmp_path), Client("alice"), Client("alice")
    async with caller(registry) as client:
        status, told = await answer(client, "POST", "/v1/register", content=alice.request())
        assert (status, told["record"]["entity_id"], told["slot"]) == (200, f"@alice:{DOMAIN}", "s00000")
        status, renewed = await answer(client, "POST", "/v1/renew", content=alice.request(RequestAction.RENEW))
        assert (status, renewed["slot"]) == (200, told["slot"])
        assert await answer(client, "GET", "/v1/names/alice") == (200, told["record"])
        refusals = [
            ("POST", "/v1/register", eve.request(), 409, "ENTITY_EXISTS"),
            ("POST", "/v1/register", Client("bob").request(relay="x"), 400, "DOMAIN_MISMATCH"),
            ("POST", "/v1/register", Client("B").request(), 400, "INVALID_ENTITY_ID"),
            ("POST", "/v1/register", alice.request(RequestAction.RENEW), 401, "INVALID_SIGNATURE"),
            ("GET", "/v1/names/bob", None, 404, "ENTITY_NOT_FOUND"),
            ("POST", "/v1/register", b"x" * (MAX_REQUEST_BYTES + 1), 400, "VALIDATION_ERROR"),
        ]
        for method, path, body, status, code in refusals:
            found = await answer(client, method, path, content=body)
            assert (found[0], found[1]["error"]["code"]) == (status, code)
        assert (await answer(client, "POST", "/v1/revoke", content=alice.request(RequestAction.REVOKE)))[0] == 200
        status, told = await answer(client, "POST", "/v1/renew", content=alice.request(RequestAction.RENEW))
        assert (status, told["error"]["code"]) == (403, "REVOKED")


async def test_it_tells_how_it_is(tmp_path: Path) -> None:
    async with caller(make_registry(tmp_path), "127.0.0.1", figures={"clients": 3}) as client:
        assert await answer(client, "GET", "/healthz") == (200, {"status": "ok", "level": 0, "tiers": [1]})
        assert await answer(client, "GET", "/readyz") == (200, {"ready": True})
        assert (await answer(client, "GET", "/v1/relay"))[1]["domain"] == DOMAIN
        assert (await client.get("/metrics")).text == "sublet_relay_clients 3\n"
        assert (await client.get("/v1/register")).status_code == 405
        assert (await client.get("/")).status_code == 404
    desk = Desk(make_registry(tmp_path), Buckets(Rate(1, 1)), lambda: False, dict)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(desk.app), base_url="https://relay.test") as client:
        assert await answer(client, "GET", "/readyz") == (503, {"ready": False})


async def test_its_figures_are_for_this_machine_alone_and_an_address_asks_for_a_bounded_number(tmp_path: Path) -> None:
    async with caller(make_registry(tmp_path), rate=Rate(1e-9, 2)) as client:
        assert (await client.get("/metrics")).status_code == 404
        found = [(await answer(client, "GET", "/v1/names/alice"))[0] for _ in range(4)]
        assert found == [404, 404, 429, 429]
        assert (await answer(client, "POST", "/v1/register", content=Client("alice").request()))[0] == 429
        assert (await answer(client, "GET", "/healthz"))[0] == 200
