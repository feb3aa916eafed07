"""Clients that know nothing of Sublet, on a real daemon: A2A 1.0, and 0.3 in three ways (C28, C43)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.compat.v0_3.types import AgentCard as LegacyCard
from a2a.helpers import get_artifact_text
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import A2AError, TaskNotCancelableError, TaskNotFoundError
from google.protobuf.json_format import MessageToDict, ParseDict

from sublet.a2a_wire.parts import to_part
from sublet.daemon.api.daemon import SHOW_STATUS
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.tokens import CREATE_TOKEN, REVOKE_TOKEN, CreateToken, OneToken
from sublet.protocol.messages import AWCP_URI
from support.a2a_world import an_invite, text
from support.daemons import SHELL_AGENT, Daemon, wait_for
from support.leases import ask, marker, processes_with

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / ".cache" / "clients"
CARD = "/.well-known/agent-card.json"
AGENT = {
    **SHELL_AGENT,
    "description": "Runs what it is told",
    "skills": [{"id": "run", "name": "Run", "description": "Runs a shell script", "tags": ["shell"]}],
}
VERSIONS = ["1.0", "0.3"]
Json = dict[str, Any]


@dataclass(frozen=True)
class Agent:
    """A daemon and a token for it."""

    daemon: Daemon
    token: str

    @property
    def url(self) -> str:
        """Where it answers."""
        return str(self.daemon.info["a2a_url"])

    def http(self, token: str | None = None) -> httpx.Client:
        """Return an HTTP client with a token, the good one by default."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=30)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent as a user starts it, and a token for a plain client."""
    daemon = Daemon(tmp_path_factory.mktemp("plain") / "bob")
    try:
        daemon.up(agent=AGENT)
        yield Agent(daemon, str(daemon.json("token", "create", "ci")["token"]))
    finally:
        daemon.down()


@pytest.fixture(scope="module")
def telltale(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent outside the sandbox, whose runs can be seen by the files that they make."""
    daemon = Daemon(tmp_path_factory.mktemp("telltale") / "bob")
    try:
        daemon.up("--unsandboxed", agent=AGENT)
        yield Agent(daemon, str(daemon.json("token", "create", "ci")["token"]))
    finally:
        daemon.down()


@asynccontextmanager
async def sdk(agent: Agent, version: str, *, streaming: bool = True) -> AsyncIterator[Client]:
    """The SDK's client, led by the card alone, on one of the interfaces that the card offers."""
    headers = {"Authorization": f"Bearer {agent.token}"}
    async with httpx.AsyncClient(headers=headers, trust_env=False, timeout=30) as http:
        card = await A2ACardResolver(http, agent.url).get_agent_card()
        chosen = [item for item in card.supported_interfaces if item.protocol_version == version]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(chosen)
        yield ClientFactory(ClientConfig(httpx_client=http, streaming=streaming)).create(card)


def said(words: str) -> Json:
    """Return the parameters of a 0.3 message."""
    part = {"kind": "text", "text": words}
    return {"message": {"kind": "message", "messageId": os.urandom(8).hex(), "role": "user", "parts": [part]}}


def rpc(method: str, params: Json) -> Json:
    """Return a JSON-RPC call."""
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


# The card


def test_c43_the_card_is_one_of_both_versions(agent: Agent) -> None:
    with agent.http() as client:
        card = client.get(CARD).json()

    now = ParseDict(card, AgentCard(), ignore_unknown_fields=True)
    assert {(item.protocol_binding, item.protocol_version) for item in now.supported_interfaces} == {
        ("JSONRPC", "1.0"),
        ("HTTP+JSON", "1.0"),
        ("JSONRPC", "0.3"),
    }
    urls = {item.protocol_binding: item.url for item in now.supported_interfaces}
    assert urls == {"JSONRPC": f"{agent.url}/", "HTTP+JSON": f"{agent.url}/a2a/v1"}
    assert (now.name, now.version, now.capabilities.streaming) == ("shell", now.version, True)
    assert now.version
    assert [skill.id for skill in now.skills] == ["run"]
    assert now.security_schemes["bearer"].http_auth_security_scheme.scheme == "bearer"
    assert [extension.uri for extension in now.capabilities.extensions] == [AWCP_URI]
    assert not now.capabilities.extensions[0].required

    then = LegacyCard.model_validate(card)
    assert (then.url, then.preferred_transport) == (f"{agent.url}/", "JSONRPC")
    assert then.protocol_version is not None
    assert then.protocol_version.startswith("0.3")
    assert [skill.id for skill in then.skills] == ["run"]


def test_c43_the_card_is_open_cached_and_found_by_its_old_name(agent: Agent) -> None:
    with httpx.Client(base_url=agent.url, trust_env=False) as client:
        first = client.get(CARD)
        again = client.get(CARD, headers={"If-None-Match": first.headers["etag"]})
        other = client.get(CARD, headers={"If-None-Match": '"other"'})
        old = client.get("/.well-known/agent.json")
        followed = client.get("/.well-known/agent.json", follow_redirects=True)
        rest = [client.get(path).status_code for path in ("/", "/healthz", "/docs", "/.well-known/", "/v1/status")]

    assert (first.status_code, again.status_code, other.status_code) == (200, 304, 200)
    assert again.content == b""
    assert "max-age" in first.headers["cache-control"]
    assert old.status_code == 308
    assert followed.json() == first.json()
    assert set(rest) == {401}, "the card is all that a stranger gets"
    assert str(agent.daemon.home) not in first.text


# Talking


@pytest.mark.anyio
@pytest.mark.parametrize("version", VERSIONS)
async def test_c43_a_plain_message_is_answered(agent: Agent, version: str) -> None:
    async with sdk(agent, version, streaming=False) as client:
        (answer,) = [event async for event in client.send_message(text("pwd; ls -A; echo hello"))]

    assert answer.task.status.state == TaskState.TASK_STATE_COMPLETED
    (artifact,) = answer.task.artifacts
    lines = get_artifact_text(artifact).splitlines()
    assert lines[-1] == "hello"
    assert len(lines) == 2, "it works in an empty directory"


@pytest.mark.anyio
@pytest.mark.parametrize("version", VERSIONS)
async def test_c43_a_failure_is_told_as_one(agent: Agent, version: str) -> None:
    async with sdk(agent, version, streaming=False) as client:
        (answer,) = [event async for event in client.send_message(text("echo so far; exit 3"))]

    assert answer.task.status.state == TaskState.TASK_STATE_FAILED
    assert "exit code 3" in answer.task.status.message.parts[0].text


@pytest.mark.anyio
@pytest.mark.parametrize("version", VERSIONS)
async def test_c43_an_answer_is_streamed_while_it_is_made(agent: Agent, version: str) -> None:
    pieces: list[str] = []
    states: list[int] = []
    async with sdk(agent, version) as client:
        async for event in client.send_message(text("echo one; sleep 1; echo two")):
            if event.HasField("artifact_update"):
                pieces.append(get_artifact_text(event.artifact_update.artifact))
            if event.HasField("status_update"):
                states.append(event.status_update.status.state)

    assert pieces[0] == "one\n"
    assert "".join(pieces) == "one\ntwo\n"
    assert states[-1] == TaskState.TASK_STATE_COMPLETED


@pytest.mark.anyio
@pytest.mark.parametrize("version", VERSIONS)
async def test_c41_c43_a_cancel_ends_the_process_and_then_the_task(agent: Agent, version: str) -> None:
    sign = marker()
    task_id = ""
    states: list[int] = []
    async with sdk(agent, version) as client:
        async for event in client.send_message(text(f"echo begun; (trap '' TERM; sleep {sign}) & sleep {sign}")):
            if event.HasField("task"):
                task_id = event.task.id
            if event.HasField("artifact_update"):
                # What it prints may come before the shell has started them.
                wait_for(lambda: processes_with(sign), 20, "its processes")
                cancelled = await client.cancel_task(CancelTaskRequest(id=task_id))
                states.append(cancelled.status.state)
        assert (await client.get_task(GetTaskRequest(id=task_id))).status.state == TaskState.TASK_STATE_CANCELED
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task_id))

    assert states == [TaskState.TASK_STATE_CANCELED]
    wait_for(lambda: not processes_with(sign), 20, "the end of its processes")


@pytest.mark.anyio
async def test_a_client_that_goes_away_finds_its_task_again(agent: Agent) -> None:
    sign = marker()
    async with sdk(agent, "1.0") as client:
        async for event in client.send_message(text(f"echo begun; sleep {sign}")):
            if event.HasField("artifact_update"):
                break
        (task,) = [
            task
            for task in (await client.list_tasks(ListTasksRequest())).tasks
            if task.status.state == TaskState.TASK_STATE_WORKING
        ]
    wait_for(lambda: processes_with(sign), 20, "its process, which goes on without its client")

    async with sdk(agent, "1.0") as client:
        ended = 0
        async for event in client.subscribe(SubscribeToTaskRequest(id=task.id)):
            if event.HasField("task"):
                await client.cancel_task(CancelTaskRequest(id=task.id))
            if event.HasField("status_update"):
                ended = event.status_update.status.state
    assert ended == TaskState.TASK_STATE_CANCELED
    wait_for(lambda: not processes_with(sign), 20, "the end of its processes")


def test_c43_a_hand_written_0_3_client(agent: Agent) -> None:
    sign = marker()
    with agent.http() as client:

        def call(method: str, params: Json) -> Json:
            body: Json = client.post("/", json=rpc(method, params)).json()
            assert (body["jsonrpc"], body["id"]) == ("2.0", 7)
            return body

        task = call("message/send", said("echo hello"))["result"]
        assert (task["kind"], task["status"]["state"]) == ("task", "completed")
        assert task["artifacts"][0]["parts"] == [{"kind": "text", "text": "hello\n"}]
        assert call("tasks/get", {"id": task["id"]})["result"]["status"]["state"] == "completed"
        assert call("tasks/cancel", {"id": task["id"]})["error"]["code"] == -32002
        assert call("tasks/get", {"id": "other"})["error"]["code"] == -32001
        assert call("tasks/nonsense", {})["error"]["code"] == -32601

        kinds: list[str] = []
        with client.stream("POST", "/", json=rpc("message/stream", said(f"echo begun; sleep {sign}"))) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            for line in stream.iter_lines():
                if not line.startswith("data:"):
                    continue
                event = json.loads(line.removeprefix("data:"))["result"]
                kinds.append(event["kind"])
                if event["kind"] == "artifact-update":
                    assert event["artifact"]["parts"] == [{"kind": "text", "text": "begun\n"}]
                    cancelled = call("tasks/cancel", {"id": event["taskId"]})
                    assert cancelled["result"]["status"]["state"] == "canceled"
    assert kinds[0] == "task"
    assert kinds[-1] == "status-update"
    wait_for(lambda: not processes_with(sign), 20, "the end of its processes")


def test_c43_a_client_of_another_language(agent: Agent) -> None:
    if shutil.which("node") is None:
        pytest.skip("no node here to run the JavaScript client with")
    assert (CLIENTS / "node_modules").is_dir(), "the JavaScript client is not installed: run scripts/setup-clients"
    sign = marker()

    done = subprocess.run(
        [
            *("node", str(ROOT / "tests" / "clients" / "plain.mjs"), str(CLIENTS), agent.url),
            *("echo hello", "echo one; sleep 1; echo two", f"echo begun; sleep {sign}"),
        ],
        env={"PATH": os.environ["PATH"], "TOKEN": agent.token},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results.pop("card").startswith("0.3")
    assert results == {
        "answer": {"state": "completed", "text": "hello\n"},
        "stream": {"state": "completed", "pieces": ["one\n", "two\n"]},
        "cancel": {"state": "canceled"},
        "again": -32002,
    }
    wait_for(lambda: not processes_with(sign), 20, "the end of its processes")


# Who is not let in


def attempts(words: str) -> list[tuple[dict[str, str], Json]]:
    """Return every way to say ``words`` that there is."""
    message = MessageToDict(text(words))
    return [
        ({"A2A-Version": "1.0"}, rpc("SendMessage", message)),
        ({"A2A-Version": "1.0"}, rpc("SendStreamingMessage", message)),
        ({}, rpc("message/send", said(words))),
        ({}, rpc("message/stream", said(words))),
    ]


@pytest.fixture(scope="module")
def bad_headers(telltale: Agent, agent: Agent) -> dict[str, dict[str, str]]:
    """Everything that is no good token."""
    daemon = telltale.daemon
    revoked = ask(daemon, lambda client: client.call(CREATE_TOKEN, CreateToken(name="old", ttl_seconds=None))).token
    expired = ask(daemon, lambda client: client.call(CREATE_TOKEN, CreateToken(name="brief", ttl_seconds=1)))
    ask(daemon, lambda client: client.call(REVOKE_TOKEN, OneToken(name="old")))
    time.sleep(1.5)
    good = telltale.token
    return {
        "none": {},
        "empty": {"Authorization": ""},
        "wrong": {"Authorization": f"Bearer {good[:-4]}AAAA"},
        "revoked": {"Authorization": f"Bearer {revoked}"},
        "expired": {"Authorization": f"Bearer {expired.token}"},
        "of another daemon": {"Authorization": f"Bearer {agent.token}"},
        "another scheme": {"Authorization": f"Basic {good}"},
        "no scheme": {"Authorization": good},
        "in a cookie": {"Cookie": f"Authorization=Bearer {good}; token={good}"},
        "in another header": {"X-API-Key": good, "Proxy-Authorization": f"Bearer {good}"},
        "huge": {"Authorization": "Bearer " + "x" * 20_000},
    }


@pytest.mark.parametrize(
    "kind",
    [
        *("none", "empty", "wrong", "revoked", "expired", "of another daemon", "another scheme", "no scheme"),
        *("in a cookie", "in another header", "huge"),
    ],
)
def test_without_a_good_token_the_answer_is_401_and_nothing_runs(
    telltale: Agent, bad_headers: dict[str, dict[str, str]], tmp_path: Path, kind: str
) -> None:
    with httpx.Client(base_url=telltale.url, trust_env=False) as client:
        for version, body in attempts(f"touch {tmp_path}/ran"):
            answer = client.post("/", json=body, headers={**bad_headers[kind], **version})
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
            error = answer.json()["error"]
            assert error["code"] == "AUTH_FAILED"
            assert "sublet token create" in error["hint"]
    assert list(tmp_path.iterdir()) == []


def test_with_a_good_token_each_of_these_runs(telltale: Agent, tmp_path: Path) -> None:
    """The counterpart of the tests above and below: what they send would run if it were let in."""
    with telltale.http() as client:
        for number, (version, body) in enumerate(attempts(f"touch {tmp_path}/$(date +%s%N)"), 1):
            answer = client.post("/", json=body, headers=version)
            assert answer.status_code == 200
            assert len(list(tmp_path.iterdir())) == number, answer.text


def test_a_revoked_token_is_dead_at_once(telltale: Agent, tmp_path: Path) -> None:
    token = str(telltale.daemon.json("token", "create", "guest")["token"])
    version, body = attempts(f"touch {tmp_path}/$(date +%s%N)")[0]
    with telltale.http(token) as client:
        assert client.post("/", json=body, headers=version).status_code == 200
        telltale.daemon.json("token", "revoke", "guest")
        assert client.post("/", json=body, headers=version).status_code == 401
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Host", "evil.example", 421),
        ("Host", "127.0.0.1.evil.example", 421),
        ("Host", "localhost.", 421),
        ("Host", "192.168.1.1", 421),
        ("Host", "", 421),
        ("Origin", "https://evil.example", 403),
        ("Origin", "http://localhost:1", 403),
        ("Origin", "null", 403),
    ],
)
def test_c28_neither_rebinding_nor_a_web_page_gets_through(
    telltale: Agent, tmp_path: Path, header: str, value: str, status: int
) -> None:
    with telltale.http() as client:
        for version, body in attempts(f"touch {tmp_path}/ran"):
            assert client.post("/", json=body, headers={**version, header: value}).status_code == status
        assert client.get(CARD, headers={header: value}).status_code == status
        assert client.options("/", headers={header: value}).status_code == status
        assert client.post("/sublet/v1/pair", json={}, headers={header: value}).status_code == status
    assert list(tmp_path.iterdir()) == []


def test_c28_a_simple_request_of_a_web_page_runs_nothing(telltale: Agent, tmp_path: Path) -> None:
    """What a page may send without asking first: no token, no Origin on old browsers, another content type."""
    _, body = attempts(f"touch {tmp_path}/ran")[2]
    with httpx.Client(base_url=telltale.url, trust_env=False) as client:
        answer = client.post("/", content=json.dumps(body), headers={"Content-Type": "text/plain"})
        assert answer.status_code == 401
        assert "access-control-allow-origin" not in answer.headers
    assert list(tmp_path.iterdir()) == []


def test_c28_all_else_is_a_private_socket_and_all_ports_are_on_loopback(agent: Agent) -> None:
    sockets = [path for path in agent.daemon.home.rglob("*.sock") if stat.S_ISSOCK(path.stat().st_mode)]
    assert {path.name for path in sockets} == {"control.sock", "mcp.sock"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in sockets} == {0o600}
    assert stat.S_IMODE(sockets[0].parent.stat().st_mode) == 0o700
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    own = {line.split()[3] for line in listening.splitlines() if f"pid={agent.daemon.pid}," in line}
    status = agent.daemon.info
    assert sorted(own) == sorted(
        [
            agent.url.removeprefix("http://"),
            status["sftp"],
            status["web"].removeprefix("http://"),
            status["bus"].removeprefix("tls/"),
        ]
    )
    assert all(address.startswith("127.0.0.1:") for address in own)


# Who may say what


@pytest.mark.anyio
@pytest.mark.parametrize("version", VERSIONS)
async def test_an_invite_by_the_holder_of_a_plain_token_is_declined(agent: Agent, version: str) -> None:
    invite = an_invite()
    message = Message(message_id="m1", role=Role.ROLE_USER, parts=[to_part(invite)], extensions=[AWCP_URI])
    async with sdk(agent, version, streaming=False) as client:
        with pytest.raises(A2AError, match="paired"):
            async for _ in client.send_message(SendMessageRequest(message=message)):
                pass
    async with sdk(agent, "1.0") as client:
        assert (await client.list_tasks(ListTasksRequest(context_id=invite.delegation_id))).total_size == 0

    assert agent.daemon.mounts == []
    status = await asyncio.to_thread(ask, agent.daemon, lambda client: client.call(SHOW_STATUS, Nothing()))
    assert status.assignments_active == 0


def test_the_refusal_of_an_invite_has_its_code(agent: Agent) -> None:
    invite = MessageToDict(to_part(an_invite()))
    params = {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [invite]}}
    with agent.http() as client:
        body = client.post("/", json=rpc("SendMessage", params), headers={"A2A-Version": "1.0"}).json()
    assert "DECLINED" in json.dumps(body["error"])
    assert "sublet pair" in json.dumps(body["error"])


@pytest.mark.anyio
async def test_one_token_does_not_see_the_tasks_of_another(agent: Agent) -> None:
    other = Agent(agent.daemon, str(agent.daemon.json("token", "create", "other")["token"]))
    async with sdk(agent, "1.0", streaming=False) as mine, sdk(other, "1.0", streaming=False) as theirs:
        (answer,) = [event async for event in mine.send_message(text("echo secret"))]
        with pytest.raises(TaskNotFoundError):
            await theirs.get_task(GetTaskRequest(id=answer.task.id))
        assert (await theirs.list_tasks(ListTasksRequest())).total_size == 0
