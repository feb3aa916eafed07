"""``POST /sublet/v1/pair``: what a caller says over HTTP is what it is paired by."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sublet.a2a_server.pairing import PairingRoute
from sublet.daemon.peering.identity import load_tls
from sublet.daemon.peering.pairing import OwnAddress
from sublet.daemon.ports.given_to_a2a import PairReply, PairRequest
from support.pairing import DirectLink, side

pytestmark = pytest.mark.anyio


class Posted(DirectLink):
    """Pairs by the other side's route."""

    async def pair(self, url: str, request: PairRequest, *, tls_fingerprint: str | None) -> PairReply:
        assert self.other is not None
        answers = PairingRoute(self.other)

        async def paired(asked: Request) -> Response:
            return await answers(asked)

        app = Starlette(routes=[Route("/pair", paired, methods=["POST"])])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://bob") as http:
            answer = await http.post("/pair", json=dataclasses.asdict(request))
        assert answer.status_code == 200, answer.text
        return PairReply(**answer.json())


async def test_a_caller_is_paired_as_it_says_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Ann's Laptop")
    certificate = load_tls(tmp_path / "tls", ["192.0.2.9"]).certificate_pem
    async with side(tmp_path / "bob", 8001) as bob, side(tmp_path / "ann", 8002) as ann:
        ann.address = OwnAddress("https://192.0.2.9:8642/", certificate)
        link = Posted()
        link.other = bob.pairing
        ann.pairing._peer_link = link
        await ann.pairing.add((await bob.pairing.create_link()).link, "bob")
        (pinned,) = bob.peers.list()
    assert (pinned.name, pinned.public_key) == ("ann-s-laptop", ann.identity.public_key)
    assert (pinned.a2a_url, pinned.tls_certificate) == ("https://192.0.2.9:8642/", certificate)
