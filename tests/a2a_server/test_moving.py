"""``POST /sublet/v1/moved``: paired daemons alone tell where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from sublet.a2a_client.peer_http import PeerAuth
from sublet.a2a_server.moving import MAX_MOVED_BYTES
from sublet.a2a_wire.names import MOVED_PATH
from sublet.daemon.ports.given_to_a2a import KnownPeer, Moved
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from support.a2a_world import TOKEN, World, world

pytestmark = pytest.mark.anyio

MOVED = Moved("http://127.0.0.1:9/", None, 1_800_000_000, "n", "s")


class Heard:
    """Takes what is told, or refuses it."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, Moved]] = []
        self.refusal: SubletError | None = None

    async def moved(self, peer: KnownPeer, source_host: str, moved: Moved) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.heard.append((peer.name, source_host, moved))


async def post(bob: World, body: Any, token: str | None = None) -> httpx.Response:
    auth = PeerAuth(bob.alice.key, bob.alice.node_id, bob.alice.fingerprint, bob.me.fingerprint)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(auth=None if token else auth, trust_env=False) as http:
        return await http.post(bob.url + MOVED_PATH, json=body, headers=headers)


async def test_a_peer_tells_where_it_is_and_hears_why_it_does_not_count(tmp_path: Path) -> None:
    heard = Heard()
    async with world(tmp_path, whereabouts=heard) as bob:
        link = bob.alice.link()
        await link.tell_moved(bob.peer(), MOVED)
        assert heard.heard == [("alice", "127.0.0.1", MOVED)]
        for code in (ErrorCode.AUTH_FAILED, LocalCode.INVALID_ARGUMENT):
            heard.refusal = SubletError(code, "no", "why")
            with pytest.raises(SubletError) as refused:
                await link.tell_moved(bob.peer(), MOVED)
            assert (refused.value.code, refused.value.message) == (code, "no")
        await link.aclose()


async def test_nobody_else_does_and_nothing_else_is_read(tmp_path: Path) -> None:
    heard = Heard()
    async with world(tmp_path, whereabouts=heard) as bob:
        assert (await post(bob, {}, "tok_wrong")).status_code == 401
        assert (await post(bob, {}, TOKEN)).status_code == 403
        late: dict[str, object] = {"a2a_url": "u", "tls_certificate": None, "at": "1", "nonce": "n"}
        malformed: list[object] = [{}, [], {"a2a_url": 1}, late]
        assert [(await post(bob, body)).status_code for body in malformed] == [400] * len(malformed)
        assert (await post(bob, {"a2a_url": "x" * MAX_MOVED_BYTES})).status_code == 413
    assert heard.heard == []
