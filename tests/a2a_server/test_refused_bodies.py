"""What a large body was made into is gone when it was refused, wherever it was, without Python's collector."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import httpx
import pytest

from sublet.a2a_server import large_bodies
from support.a2a_world import World

pytestmark = pytest.mark.anyio
LARGE = 1_000_000
TEXT = "x" * LARGE
MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": TEXT}]}


def left() -> int:
    """Return how many large texts something in this process has that Python's collector knows."""
    texts = (told for one in gc.get_objects() for told in gc.get_referents(one) if isinstance(told, str | bytes))
    found = {id(told) for told in texts if len(told) >= LARGE}
    return len(found)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("SendMessage", {"message": {"parts": [{"text": TEXT}]}}),
        ("SendMessage", {"message": MESSAGE | {"taskId": "none"}}),
        ("SendMessage", {"message": MESSAGE | {"role": TEXT}}),
        ("SendMessage", {"message": TEXT}),
        ("SendStreamingMessage", {"message": {"parts": [{"text": TEXT}]}}),
        ("SendStreamingMessage", {"message": MESSAGE | {"taskId": "none"}}),
        ("GetTask", {"id": TEXT}),
        ("CancelTask", {"id": TEXT}),
        ("SubscribeToTask", {"id": TEXT}),
        ("Nothing", {"id": TEXT}),
        (TEXT, {}),
        ("message/send", {"message": {"text": TEXT}}),
    ],
)
async def test_nothing_of_a_refused_body_is_left(
    bob: World, monkeypatch: pytest.MonkeyPatch, method: str, params: Any
) -> None:
    monkeypatch.setattr(large_bodies, "COLLECT_SECONDS", 0.0)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    gc.collect()
    gc.disable()
    try:
        async with httpx.AsyncClient(base_url=bob.url, trust_env=False) as http:
            before = left()
            for _ in range(3):
                headers = {"Authorization": f"Bearer {bob.alice.assertion(bob.me.fingerprint)}", "A2A-Version": "1.0"}
                if method.startswith("message/"):
                    del headers["A2A-Version"]
                answer = await http.post("/", content=body, headers=headers | {"Content-Type": "application/json"})
                assert "error" in answer.text, answer.text[:300]
                await answer.aclose()
            await asyncio.sleep(0.1)
            del answer
            assert left() <= before
    finally:
        gc.enable()
