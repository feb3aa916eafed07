"""Two agents in one session each go on with a session of their own, also over a restart (SuperAgent 12)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.chat_process import ChatStub, chat_stub
from support.daemons import Daemon

pytestmark = pytest.mark.timeout(120)


def said(stub: ChatStub) -> list[str]:
    """Return what the user has said in the conversation that was asked last."""
    return [str(one["content"]) for one in stub.requests()[-1]["body"]["messages"] if one["role"] == "user"]


def test_two_agents_keep_their_own_threads_in_one_session_over_a_kill(tmp_path: Path) -> None:
    with (
        chat_stub(tmp_path / "c", [{"say": "coded"}]) as coder,
        chat_stub(tmp_path / "r", [{"say": "reviewed"}]) as reviewer,
    ):
        agents = {"agents": [coder.agent(id="coder"), reviewer.agent(id="reviewer")]}
        daemon = Daemon(tmp_path / "a")
        try:
            daemon.up(agent=agents)
            session = ask(daemon, "@coder write it")["fingerSessionId"]
            assert ask(daemon, "@reviewer read it", session)["result"] == "reviewed"
            before = bindings(daemon, session)
            assert set(before) == {"coder", "reviewer"}
            assert before["coder"] != before["reviewer"]
            daemon.kill()
            daemon.up(agent=agents)
            # Without a name it goes to whoever did the last request.
            again = ask(daemon, "and once more", session)
            assert (again["agentId"], again["providerSessionId"]) == ("reviewer", before["reviewer"])
            assert any("read it" in text for text in said(reviewer)[:-1])
            assert not any("write it" in text for text in said(reviewer))
            other = ask(daemon, "@coder mend it", session)
            assert other["providerSessionId"] == before["coder"]
            assert any("write it" in text for text in said(coder)[:-1])
            assert bindings(daemon, session) == before
            shown = daemon.json("sessions", "show", session)
            assert [one["text"] for one in shown["messages"] if one["role"] == "user"] == [
                "@coder write it",
                "@reviewer read it",
                "and once more",
                "@coder mend it",
            ]
            daemon.run("sessions", "pause", session)
            closed = daemon.json("ask", "--session", session, "more", check=(5,))
            assert closed["error"]["code"] == "SESSION_CLOSED"
        finally:
            daemon.down()


def test_a_client_goes_on_in_its_context_and_no_other_client_does(tmp_path: Path) -> None:
    with chat_stub(tmp_path / "c", [{"say": "yes"}]) as stub:
        daemon = Daemon(tmp_path / "a")
        try:
            daemon.up(agent=stub.agent())
            mine, theirs = (daemon.json("token", "create", name)["token"] for name in ("one", "two"))
            for token, text, known in (
                (mine, "my secret is 7", []),
                (theirs, "what is the secret?", []),
                (mine, "go on", ["my secret is 7"]),
            ):
                send(daemon, token, text, "shared-context")
                assert [one for one in said(stub)[:-1] if "secret" in one and "what" not in one] == known or known
                assert all(any(one in heard for heard in said(stub)) for one in known)
            owners = {one["owner"].rpartition(":")[0] for one in daemon.json("sessions", "list")["sessions"]}
            assert owners == {"token:one", "token:two"}
        finally:
            daemon.down()


def test_recorded_routes_are_decided_the_same_again(tmp_path: Path) -> None:
    with chat_stub(tmp_path / "c", [{"say": "coded"}]) as coder:
        daemon = Daemon(tmp_path / "a")
        try:
            daemon.up(agent={"agents": [coder.agent(id="coder")]})
            session = ask(daemon, "@coder write it")["fingerSessionId"]
            daemon.json("ask", "--session", session, "/hub nowhere do it", check=(0, 1, 2, 3, 4, 5, 6, 7))
            before = daemon.run("events", "--session", session, "--json").stdout
            replayed = daemon.json("replay", session)
            routes = [one for one in replayed["steps"] if one["kind"] == "route_decided"]
            assert [(one["result"], one["recorded"]["decision"]) for one in routes] == [
                ("equal", "dispatch_agent"),
                ("equal", "reject"),
            ]
            assert not any(one["out_of_order"] for one in replayed["steps"])
            # Reading it again changes nothing.
            assert daemon.run("events", "--session", session, "--json").stdout == before
        finally:
            daemon.down()


def ask(daemon: Daemon, text: str, session: str | None = None) -> Any:
    more = ("--session", session) if session else ()
    return daemon.json("ask", *more, text)


def bindings(daemon: Daemon, session: str) -> dict[str, str]:
    shown = daemon.json("sessions", "show", session)
    return {one["agentId"]: one["providerSessionId"] for one in shown["bindings"]}


def send(daemon: Daemon, token: str, text: str, context: str) -> None:
    """Send a plain message as an A2A client does."""
    message = {"messageId": f"m-{text}", "contextId": context, "role": "ROLE_USER", "parts": [{"text": text}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    headers = {"Authorization": f"Bearer {token}", "A2A-Version": "1.0"}
    answer = httpx.post(f"{daemon.info['a2a_url']}/", json=body, headers=headers, timeout=30, trust_env=False)
    assert "error" not in answer.json(), answer.text
    assert json.loads(answer.text)["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED", answer.text
