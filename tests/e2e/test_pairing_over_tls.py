"""Pairing and lending where the other side is another machine: TLS with a pinned certificate, and nothing else."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers import get_artifact_text
from a2a.types import StreamResponse, TaskState
from nacl.signing import SigningKey

from sublet.a2a_wire.assertion import make_assertion
from sublet.daemon.api.daemon import SHOW_STATUS
from sublet.daemon.api.events import READ_EVENTS, ReadEvents
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.peers import CREATE_PAIR_LINK, LIST_PEERS, CreatePairLink
from sublet.protocol.events import EventKind
from sublet.protocol.ids import fingerprint
from support.a2a_world import text
from support.daemons import SHELL_AGENT, Daemon, pair, wait_for
from support.leases import ask, delegate
from support.namespaces import needs_root
from support.paired_machines import PORT, PairedMachines, paired_machines, start

pytestmark = needs_root


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PairedMachines]:
    with paired_machines(tmp_path_factory.mktemp("tls")) as both:
        yield both


@contextmanager
def impostor(scene: PairedMachines, home: Path, *stolen: str) -> Iterator[Daemon]:
    """Another daemon at Bob's address, with those of Bob's key files that were stolen."""
    scene.bob.run("down")
    keys = home / "state" / "keys"
    keys.mkdir(mode=0o700, parents=True)
    (home / "state").chmod(0o700)
    for name in stolen:
        shutil.copy(scene.bob.home / "state" / "keys" / name, keys / name)
    mallory = Daemon(home, prefix=scene.right.prefix)
    try:
        yield start(mallory, scene.right)
    finally:
        mallory.down()
        start(scene.bob, scene.right)


def certificate(daemon: Daemon) -> ssl.SSLContext:
    """Return what a careful client of ``daemon`` trusts: its certificate, for the address that stands in it."""
    return ssl.create_default_context(cafile=str(daemon.home / "state" / "keys" / "tls.pem"))


def test_beyond_loopback_everything_is_https_and_pinned(scene: PairedMachines, tmp_path: Path) -> None:
    assert scene.bob.info["a2a_url"] == f"https://{scene.right.address}:{PORT}"
    (bob,) = ask(scene.ann, lambda client: client.call(LIST_PEERS, Nothing()))
    assert (bob.a2a_url, bob.fingerprint) == (f"https://{scene.right.address}:{PORT}/", scene.bob.info["fingerprint"])

    assert delegate(scene.ann, tmp_path, "echo hello > mark")["state"] == "completed"

    assert (tmp_path / "mark").read_text() == "hello\n"


def test_a_link_whose_certificate_is_another_pairs_nobody_and_tells_the_server_nothing(scene: PairedMachines) -> None:
    link = ask(scene.bob, lambda client: client.call(CREATE_PAIR_LINK, CreatePairLink())).link
    address, _, fragment = link.partition("#")
    parts = fragment.split(".")
    parts[2] = ("B" if parts[2][0] == "A" else "A") + parts[2][1:]

    done = scene.ann.run(
        "peers", "add", f"{address}#{'.'.join(parts)}", "--name", "other", "--json", check=(5,), timeout=60
    )

    assert json.loads(done.stdout)["error"]["code"] == "KEY_CHANGED"
    assert [peer.name for peer in ask(scene.ann, lambda client: client.call(LIST_PEERS, Nothing()))] == ["bob"]
    # The handshake alone told it, so the link's secret has not been spent.
    assert scene.ann.json("peers", "add", link, "--name", "bob")["name"] == "bob"


def test_an_impostor_with_another_certificate_is_refused_loudly(scene: PairedMachines, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine\n")
    with impostor(scene, tmp_path.with_name("mallory-1")) as mallory:
        done = scene.ann.run("delegate", str(tmp_path), "--to", "bob", "rm file", "--json", check=(5,))
        assert ask(mallory, lambda client: client.call(SHOW_STATUS, Nothing())).peers == 0

    ended = json.loads(done.stdout)
    assert (ended["state"], ended["error"]["code"]) == ("error", "KEY_CHANGED")
    assert "certificate" in ended["error"]["message"]
    assert "peers remove bob" in ended["error"]["hint"]
    assert (tmp_path / "file").read_text() == "mine\n"
    assert delegate(scene.ann, tmp_path, "true")["state"] == "completed", "the true one is still trusted"


def test_an_impostor_with_the_stolen_certificate_is_refused_loudly(scene: PairedMachines, tmp_path: Path) -> None:
    with impostor(scene, tmp_path.with_name("mallory-2"), "tls.key", "tls.pem"):
        done = scene.ann.run("delegate", str(tmp_path), "--to", "bob", "touch mark", "--json", check=(5,))

    ended = json.loads(done.stdout)
    assert (ended["state"], ended["error"]["code"]) == ("error", "KEY_CHANGED")
    assert "posing" in ended["error"]["message"]
    assert list(tmp_path.iterdir()) == []


def test_a_caller_who_poses_as_a_peer_with_another_key_is_refused_loudly(scene: PairedMachines) -> None:
    key = SigningKey.generate()
    posed = make_assertion(
        key,
        node_id=str(scene.ann.info["node_id"]),
        fingerprint=fingerprint(bytes(key.verify_key)),
        audience=str(scene.bob.info["fingerprint"]),
    )
    stolen_name = make_assertion(
        key,
        node_id=str(scene.ann.info["node_id"]),
        fingerprint=str(scene.ann.info["fingerprint"]),
        audience=str(scene.bob.info["fingerprint"]),
    )
    with scene.left.inside(), httpx.Client(base_url=scene.bob.info["a2a_url"], verify=certificate(scene.bob)) as client:
        answers = [
            client.post("/", json={}, headers={"Authorization": f"Bearer {token}"}) for token in (posed, stolen_name)
        ]

    assert [answer.status_code for answer in answers] == [401, 401]
    assert [answer.json()["error"]["code"] for answer in answers] == ["KEY_CHANGED", "AUTH_FAILED"]

    def told() -> list[dict[str, Any]]:
        seen = ask(scene.bob, lambda client: client.call(READ_EVENTS, ReadEvents(cursor=0, limit=500))).events
        return [event.data for event in seen if event.kind is EventKind.PEER_KEY_CHANGED]

    # The refusal does not wait until it is written down.
    reports = wait_for(told, what="a report of the changed key")
    assert reports[-1]["pinned"] == scene.ann.info["fingerprint"]
    assert reports[-1]["shown"] == fingerprint(bytes(key.verify_key))


def test_plain_http_is_not_spoken_beyond_loopback(scene: PairedMachines, tmp_path: Path) -> None:
    with scene.left.inside(), httpx.Client(trust_env=False) as client, pytest.raises(httpx.TransportError):
        client.get(f"http://{scene.right.address}:{PORT}/.well-known/agent-card.json")
    for options in (
        ("--a2a", "127.0.0.1:0", "--public-url", f"http://{scene.right.address}:{PORT}"),
        ("--a2a", "127.0.0.1:0", "--public-url", "ftp://example.org/"),
    ):
        stranger = Daemon(tmp_path / "home", prefix=scene.right.prefix)
        done = stranger.run("up", "--detach", "--json", "--sftp", "127.0.0.1:0", *options, check=(2,))
        assert json.loads(done.stdout)["error"]["code"] == "INVALID_ARGUMENT"


def test_a_daemon_that_listens_everywhere_names_an_address_that_others_reach(
    scene: PairedMachines, tmp_path: Path
) -> None:
    wide = Daemon(tmp_path / "wide", prefix=scene.right.prefix)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    try:
        # As README says: without --sftp, and to a lender of whom nothing can be reached.
        wide.up(a2a="0.0.0.0:0", sftp=None, agent=SHELL_AGENT)
        assert wide.info["sftp"] == "0.0.0.0:8622"
        assert wide.info["a2a_url"].startswith(f"https://{scene.right.address}:")
        pair(scene.ann, wide, "wide")
        done = delegate(scene.ann, workspace, "echo hello > mark", peer="wide")
        assert (done["state"], done["usage"]["data_path"]) == ("completed", "reverse")
        scene.ann.run("peers", "remove", "wide")
    finally:
        wide.down()
    assert (workspace / "mark").read_text() == "hello\n"


def test_a_plain_client_needs_the_certificate_the_right_name_and_a_token(scene: PairedMachines) -> None:
    """What a client that knows nothing of Sublet does beyond loopback, with the certificate handed over as a file."""
    token = scene.bob.json("token", "create", "remote")["token"]
    url = str(scene.bob.info["a2a_url"])

    async def talk() -> StreamResponse:
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(headers=headers, verify=certificate(scene.bob), timeout=30) as http:
            card = await A2ACardResolver(http, url).get_agent_card()
            client = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
            (answer,) = [event async for event in client.send_message(text("echo hello"))]
            return answer

    with scene.left.inside():
        answer = asyncio.run(talk())
        with httpx.Client(trust_env=False) as unaware, pytest.raises(httpx.ConnectError, match="CERTIFICATE"):
            unaware.get(url)
        with httpx.Client(verify=certificate(scene.bob), trust_env=False) as client:
            rebound: list[Any] = [
                client.get(f"{url}/.well-known/agent-card.json", headers={"Host": host})
                for host in (f"{scene.right.address}:{PORT}", "evil.example", f"evil.example:{PORT}", "10.203.0.1")
            ]
            nobody = client.post(url, json={})

    assert answer.task.status.state == TaskState.TASK_STATE_COMPLETED
    assert [get_artifact_text(artifact) for artifact in answer.task.artifacts] == ["hello\n"]
    assert [response.status_code for response in rebound] == [200, 421, 421, 421]
    assert nobody.status_code == 401
