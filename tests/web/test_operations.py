"""What the page shows and does: the daemon's own operations, live events, and approvals by passphrase."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from sublet.daemon.api.approvals import DenyApproval
from sublet.daemon.api.delegation_views import ErrorView
from sublet.daemon.api.delegations import CreateDelegation
from sublet.policy.decision import Subject
from sublet.protocol.canonical import JsonValue
from sublet.web import routes
from support.approvals import PASSPHRASE, call, desk
from support.web_page import Page, served

pytestmark = pytest.mark.anyio

HUMAN = Subject("human")
ASK_FIRST: dict[str, JsonValue] = {
    "id": "ask-first",
    "effect": "approval",
    "action": "tool.call",
    "subject": {"kind": "agent"},
    "resource": "*",
}


@asynccontextmanager
async def logged_in(page: Page) -> AsyncIterator[httpx.AsyncClient]:
    async with page.visitor() as client:
        await page.log_in(client)
        yield client


async def a_delegation(page: Page) -> str:
    request = CreateDelegation(workspace_dir="/w", peer="bob", prompt="<b>run</b>")
    return (await page.api.create_delegation(request, HUMAN)).delegation_id


async def next_event(lines: AsyncIterator[str]) -> dict[str, object]:
    async for line in lines:
        if line.startswith("data: "):
            found = json.loads(line[6:])
            assert isinstance(found, dict)
            return found
    raise AssertionError("the stream has ended")


async def test_it_lists_and_shows_delegations(tmp_path: Path) -> None:
    async with served(tmp_path) as page, logged_in(page) as client:
        one = await a_delegation(page)
        [listed] = (await client.get("/api/delegations")).json()
        assert (listed["delegation_id"], listed["description"]) == (one, "<b>run</b>")
        assert (await client.get(f"/api/delegations/{one}")).json()["peer"] == "bob"
        missing = await client.get("/api/delegations/dlg_x")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "NOT_FOUND")
        for wrong in ("?limit=0", "?limit=9999", "?what=1", "?limit=1&limit=2"):
            assert (await client.get(f"/api/delegations{wrong}")).status_code == 422


async def test_events_come_live_and_go_on_at_a_cursor(tmp_path: Path) -> None:
    async with served(tmp_path) as page, logged_in(page) as client:
        one = await a_delegation(page)
        async with client.stream("GET", "/api/events/stream?cursor=0") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.aiter_lines()
            assert (await next_event(lines))["seq"] == 1
            await page.api.output(one, "first\u2028\u202e<script>")
            told = await next_event(lines)
            assert told["data"] == {"stream": "stdout", "text": "first\u2028\u202e<script>", "dropped_chars": 0}
        await page.api.fail(one, ErrorView(code="TASK_FAILED", message="no"))
        async with client.stream("GET", "/api/events/stream?cursor=2") as stream:
            assert (await next_event(stream.aiter_lines()))["seq"] == 3
        recent = (await client.get("/api/events?limit=2")).json()
        assert [event["seq"] for event in recent["events"]] == [2, 3]
        assert recent["cursor"] == 3


async def test_streams_are_few_and_end_with_the_session_and_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MAX_STREAMS", 1)
    async with served(tmp_path) as page, logged_in(page) as client, logged_in(page) as other:
        one = await a_delegation(page)
        async with client.stream("GET", "/api/events/stream") as stream:
            lines = stream.aiter_lines()
            await next_event(lines)
            refused = await other.get("/api/events/stream")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "UNAVAILABLE")
            assert (await client.post("/api/logout", json={})).status_code == 200
            # Whoever is logged out gets nothing of what happens from then on.
            await page.api.output(one, "a secret")
            assert [line async for line in lines if "a secret" in line] == []
        async with other.stream("GET", "/api/events/stream?cursor=2") as stream:
            assert stream.status_code == 200
            page.face._api.stop()
            rest = [line async for line in stream.aiter_lines()]
            assert any("UNAVAILABLE" in line for line in rest)


async def test_a_stop_waits_for_no_reader(tmp_path: Path) -> None:
    with anyio.CancelScope() as scope:
        async with served(tmp_path) as page, logged_in(page) as client:
            request = client.build_request("GET", "/api/events/stream")
            stream = await client.send(request, stream=True)
            assert stream.status_code == 200
            scope.deadline = anyio.current_time() + 20  # of the stop alone, which would wait for ever
    await stream.aclose()
    assert not scope.cancelled_caught


async def test_a_call_is_approved_by_passphrase_alone(tmp_path: Path) -> None:
    async with desk(tmp_path, [ASK_FIRST]) as side, served(tmp_path, side.service) as page, logged_in(page) as client:
        await side.make_approver()
        async with anyio.create_task_group() as group:
            verdicts: list[bool] = []

            async def work() -> None:
                verdicts.append((await side.gate().ask(call(command="make 'deploy' \u202e"))).allowed)

            group.start_soon(work)
            asked = await side.asked()
            [listed] = (await client.get("/api/approvals")).json()
            assert listed["arguments"] is None
            shown = (await client.get(f"/api/approvals/{asked.id}")).json()
            assert shown["arguments"] == '{"command":"make \'deploy\' \\u202e"}'
            path = f"/api/approvals/{asked.id}/approve"
            for body in ({}, {"passphrase": ""}, {"passphrase": "x", "signed": {}}):
                assert (await client.post(path, json=body)).status_code == 422
            wrong = await client.post(path, json={"passphrase": "a guess"})
            assert (wrong.status_code, wrong.json()["error"]["code"]) == (403, "PASSPHRASE_WRONG")
            assert not verdicts
            done = await client.post(path, json={"passphrase": PASSPHRASE, "terms": {"max_uses": 1, "ttl_seconds": 60}})
            assert (done.status_code, done.json()["state"]) == (200, "approved")
        assert verdicts == [True]
        assert PASSPHRASE not in done.text
        assert (await client.get("/api/approver")).json()["sealed"] is None


async def test_a_call_is_denied_and_a_grant_revoked_without_a_passphrase(tmp_path: Path) -> None:
    async with desk(tmp_path, [ASK_FIRST]) as side, served(tmp_path, side.service) as page, logged_in(page) as client:
        await side.make_approver()
        async with anyio.create_task_group() as group:
            verdicts: list[bool] = []

            async def work() -> None:
                verdicts.append((await side.gate().ask(call())).allowed)

            group.start_soon(work)
            asked = await side.asked()
            assert (await client.post(f"/api/approvals/{asked.id}/deny", json={})).json()["state"] == "denied"
        assert verdicts == [False]
        twice = await client.post(f"/api/approvals/{asked.id}/deny", json={})
        assert (twice.status_code, twice.json()["error"]["code"]) == (409, "CONFLICT")
        grant = await side.grants.issue(
            side.grants.make(
                agent="coder", tool="shell.exec", digest="0" * 64, issued_by="human", ttl_seconds=60, max_uses=1
            )
        )
        assert (await client.get("/api/grants?usable=true")).json()[0]["id"] == grant.id
        assert (await client.delete(f"/api/grants/{grant.id}")).json()["state"] == "revoked"


async def test_passphrases_wait_in_no_long_line(tmp_path: Path) -> None:
    """Checking one takes 256 MiB and half a second."""
    async with desk(tmp_path, [ASK_FIRST]) as side, served(tmp_path, side.service) as page, logged_in(page) as client:
        await side.make_approver()
        async with anyio.create_task_group() as group:
            group.start_soon(side.gate().ask, call())
            asked = await side.asked()
            statuses: list[int] = []

            async def guess() -> None:
                answer = await client.post(f"/api/approvals/{asked.id}/approve", json={"passphrase": "a guess"})
                statuses.append(answer.status_code)

            await side.service._unsealing.acquire()
            async with anyio.create_task_group() as guesses:
                for _ in range(6):
                    guesses.start_soon(guess)
                while len(statuses) < 2:
                    await anyio.lowlevel.checkpoint()
                side.service._unsealing.release()
            assert sorted(statuses) == [403] * 4 + [503] * 2
            await side.service.deny_approval(DenyApproval(approval_id=asked.id), HUMAN)
