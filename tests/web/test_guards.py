"""The page refuses other host names, other pages, and whoever has not logged in (case C28, DESIGN 9.1)."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import httpx
import pytest

from sublet.protocol.errors import SubletError
from sublet.web.headers import ANSWER_HEADERS
from sublet.web.routes import KEY_HEADER
from sublet.web.sessions import MAX_SESSIONS
from support.web_page import Page, served

pytestmark = pytest.mark.anyio

WHAT_IS_THERE = ("/", "/main.js", "/api/status", "/api/events/stream", "/nothing")


async def raw(page: Page, request: bytes) -> bytes:
    """Return the status line that answers exactly these bytes."""
    reader, writer = await asyncio.open_connection(*page.host.split(":"))
    try:
        writer.write(request)
        return await reader.readline()
    finally:
        writer.close()


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}", "localhost:{port}"]
)
async def test_no_other_name_is_answered(tmp_path: Path, host: str) -> None:
    async with served(tmp_path) as page, page.visitor() as client:
        await page.log_in(client)
        given = host.replace("{port}", page.host.partition(":")[2])
        for path in WHAT_IS_THERE:
            assert (await client.get(path, headers={"Host": given})).status_code == 403
        assert (await client.post("/api/logout", json={}, headers={"Host": given})).status_code == 403
        assert (await client.get("/api/delegations")).status_code == 200


async def test_the_name_is_compared_to_the_letter_and_comes_once(tmp_path: Path) -> None:
    async with served(tmp_path) as page:
        host = page.host.encode()
        assert b"200" in await raw(page, b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        for twice in (
            b"Host: %b\r\nHost: evil.example" % host,
            b"Host: evil.example\r\nHost: %b" % host,
            b"Host: %b." % host,
        ):
            line = await raw(page, b"GET / HTTP/1.1\r\n" + twice + b"\r\n\r\n")
            assert b" 400 " in line or b" 403 " in line
        assert b" 403 " in await raw(page, b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n")


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost:{port}", "https://{host}", ""]
)
async def test_no_other_page_is_answered(tmp_path: Path, origin: str) -> None:
    async with served(tmp_path) as page, page.visitor() as client:
        await page.log_in(client)
        given = origin.replace("{host}", page.host).replace("{port}", page.host.partition(":")[2])
        for path in WHAT_IS_THERE:
            assert (await client.get(path, headers={"Origin": given})).status_code == 403
        for action in ("cancel", "undo"):
            changed = await client.post(f"/api/delegations/dlg_1/{action}", json={}, headers={"Origin": given})
            assert changed.status_code == 403


async def test_what_changes_something_says_where_it_comes_from(tmp_path: Path) -> None:
    async with served(tmp_path) as page, page.visitor() as client:
        await page.log_in(client)
        del client.headers["Origin"]
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            for path in ("/api/logout", "/api/delegations/dlg_1/undo"):
                assert (await client.request(method, path, json={})).status_code == 403
        assert (await client.get("/api/delegations")).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
async def test_what_another_page_of_this_machine_causes_is_refused(tmp_path: Path, site: str) -> None:
    """Another port of 127.0.0.1 is the same site, so that ``SameSite`` does not keep it from sending our cookie."""
    async with served(tmp_path) as page, page.visitor() as client:
        await page.log_in(client)
        client.headers["Sec-Fetch-Site"] = site
        del client.headers["Origin"]
        for path in WHAT_IS_THERE[1:]:
            assert (await client.get(path)).status_code == 403
        # But for the way by which a link is followed, to the page that holds nothing yet.
        assert (await client.get("/")).status_code == 403
        assert (await client.get("/", headers={"Sec-Fetch-Mode": "navigate"})).status_code == 200
        assert (await client.get("/api/status", headers={"Sec-Fetch-Mode": "navigate"})).status_code == 403


async def test_a_session_needs_both_its_secrets(tmp_path: Path) -> None:
    async with served(tmp_path) as page, page.visitor() as client, page.visitor() as other:
        assert (await client.get("/api/delegations")).status_code == 401
        await page.log_in(client)
        await page.log_in(other)
        assert (await client.get("/api/delegations")).status_code == 200
        for key in ("", "x" * 43, other.headers[KEY_HEADER]):
            assert (await client.get("/api/delegations", headers={KEY_HEADER: key})).status_code == 401
        async with page.visitor(**{KEY_HEADER: client.headers[KEY_HEADER]}) as without_cookie:
            assert (await without_cookie.get("/api/delegations")).status_code == 401
        for method, path in (
            ("GET", "/api/approvals"),
            ("POST", "/api/approvals/apr_1/approve"),
            ("GET", "/api/events/stream"),
        ):
            client.cookies.clear()
            assert (await client.request(method, path)).status_code == 401


async def test_the_cookie_is_for_this_page_alone_and_no_script(tmp_path: Path) -> None:
    async with served(tmp_path) as page, page.visitor() as client:
        answer = await client.post("/api/login", json={"secret": page.logins.make(60)})
        cookie = answer.headers["set-cookie"].lower()
        assert cookie.startswith(f"sublet_{page.host.partition(':')[2]}=")
        assert {"httponly", "samesite=strict", "path=/"} <= {part.strip() for part in cookie.split(";")}
        assert "domain" not in cookie
        assert answer.headers["cache-control"] == "no-store"


async def test_every_answer_confines_the_page(tmp_path: Path) -> None:
    async with served(tmp_path) as page, page.visitor() as client:
        answers = [await client.get(path) for path in WHAT_IS_THERE]
        answers.append(await client.get("/", headers={"Host": "evil.example"}))
        for answer in answers:
            for name, value in ANSWER_HEADERS.items():
                assert answer.headers[name] == value, (answer.url, name)
            assert "access-control-allow-origin" not in answer.headers
        policy = answers[0].headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert not {"unsafe-inline", "unsafe-eval", "data:", "http:", "*"} & set(
            policy.replace("'", "").replace(";", "").split()
        )


async def test_a_link_logs_in_once(tmp_path: Path) -> None:
    async with served(tmp_path) as page, page.visitor() as client:
        secret = page.logins.make(60)
        assert (await client.post("/api/login", json={"secret": secret})).status_code == 200
        again = await client.post("/api/login", json={"secret": secret})
        assert (again.status_code, again.json()["error"]["code"]) == (403, "TOKEN_INVALID")
        assert "set-cookie" not in again.headers
        unknown = await client.post("/api/login", json={"secret": "nothing.known"})
        assert unknown.json() == again.json()
        assert secret not in again.text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"secret": 1}',
        b'{"secret": "a", "more": 1}',
        b'{"secret": "\xff"}',
        b'{"secret":"' + b"x" * 20_000 + b'"}',
    ],
)
async def test_a_malformed_login_is_refused_without_an_echo(tmp_path: Path, body: bytes) -> None:
    async with served(tmp_path) as page, page.visitor() as client:
        answer = await client.post("/api/login", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422
        assert len(answer.content) < 500


async def test_a_form_of_another_page_can_not_log_anybody_in(tmp_path: Path) -> None:
    async with served(tmp_path) as page, page.visitor() as client:
        answer = await client.post("/api/login", data={"secret": page.logins.make(60)})
        assert answer.status_code == 422
        assert "set-cookie" not in answer.headers


async def test_trying_links_ends_soon_and_keeps_nobody_out(tmp_path: Path) -> None:
    async with served(tmp_path) as page, page.visitor() as client:
        statuses = [(await client.post("/api/login", json={"secret": f"guess{n}.x"})).status_code for n in range(40)]
        assert statuses[0] == 403
        assert statuses[-1] == 503
        await page.log_in(client)
        assert (await client.get("/api/delegations")).status_code == 200


async def test_who_logs_out_is_out_and_others_are_not(tmp_path: Path) -> None:
    async with served(tmp_path) as page, page.visitor() as client, page.visitor() as other:
        await page.log_in(client)
        await page.log_in(other)
        cookies = dict(client.cookies)
        assert (await client.post("/api/logout", json={})).status_code == 200
        client.cookies.update(cookies)
        assert (await client.get("/api/delegations")).status_code == 401
        assert (await other.get("/api/delegations")).status_code == 200


async def test_the_oldest_of_too_many_sessions_ends(tmp_path: Path) -> None:
    async with served(tmp_path) as page, page.visitor() as first:
        await page.log_in(first)
        for _ in range(MAX_SESSIONS):
            async with page.visitor() as client:
                await page.log_in(client)
        assert (await first.get("/api/delegations")).status_code == 401


async def test_no_path_leads_to_another_file(tmp_path: Path) -> None:
    async with served(tmp_path) as page:
        host = page.host.encode()
        for path in (
            b"/../face.py",
            b"/..%2fface.py",
            b"//etc/passwd",
            b"/static/app.css",
            b"/%2e%2e/face.py",
            b"/main.js/",
            b"/\\face.py",
        ):
            assert b"404" in await raw(page, b"GET %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (path, host)), path


async def test_a_page_is_nothing_but_its_own_files(tmp_path: Path) -> None:
    async with served(tmp_path) as page, page.visitor() as client:
        index = await client.get("/")
        assert index.headers["content-type"].startswith("text/html")
        assert "://" not in index.text, "no foreign host"
        assert "<script>" not in index.text
        known = await client.get("/main.js", headers={"If-None-Match": (await client.get("/main.js")).headers["etag"]})
        assert known.status_code == 304


async def test_it_listens_on_loopback_alone_and_a_taken_default_gives_way(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with served(tmp_path, port=port, chosen=False) as page:
            assert page.host.startswith("127.0.0.1:")
            assert page.host != f"127.0.0.1:{port}"
        with pytest.raises(SubletError, match="can't listen"):
            async with served(tmp_path, port=port, chosen=True):
                pass


async def test_a_request_that_never_ends_is_bounded(tmp_path: Path) -> None:
    async with served(tmp_path) as page, page.visitor() as client:
        await page.log_in(client)
        large = await client.post("/api/approvals/apr_1/approve", json={"passphrase": "x" * 100_000})
        assert large.status_code == 422
        try:
            answer = await client.get("/api/delegations", headers={"X-Large": "x" * 100_000})
            assert answer.status_code in (400, 431)
        except httpx.HTTPError:
            pass  # cut while it still sends, which is as good
