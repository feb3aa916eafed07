"""What federation.toml says is in force: each field has the effect that the page says."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from sublet.federation.settings import MAX_PEERS, HttpSettings, PeerSettings, Settings, read_settings, split_listen
from sublet.node_http.listed import ListedNodes, Place
from sublet.protocol.errors import SubletError
from sublet.protocol.ids import fingerprint, node_id
from support.federation_world import World, until

pytestmark = pytest.mark.anyio

PRINT = "SHA256:" + "A" * 43
A, B = "worker-1@ann.local", "worker-1@bob.local"
EXAMPLE = """
[agent_federation.http]
enabled = true
[[agent_federation.peers]]
node_id = "kitchen.local"
url = "{url}"
trusted = true
"""
KEYED = f'fingerprint = "{PRINT}"\n'
OPEN = "allow_plaintext = true\n"


def listed(settings: Settings) -> ListedNodes:
    return ListedNodes(lambda: settings, set, lambda: None)


def read(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "federation.toml"
    file.write_text(text)
    return read_settings(file)


@pytest.mark.parametrize(
    ("url", "more", "why"),
    [
        # The specification's own example: it is read, and stays off with the reason.
        ("http://kitchen.local:7676", "", "plain http leaves this machine only with allow_plaintext"),
        ("http://kitchen.local:7676", KEYED, "plain http leaves"),
        ("http://kitchen.local:7676", OPEN, "nobody knows its key"),
        ("https://kitchen.local:7676", "", "nobody knows its key"),
        ("http://127.0.0.1:7676", "", "nobody knows its key"),
        ("http://kitchen.local:7676", KEYED + OPEN, ""),
        ("https://kitchen.local:7676", KEYED, ""),
        ("http://127.0.0.1:7676", KEYED, ""),
        ("http://[::1]:7676", KEYED, ""),
        ("http://localhost:7676", KEYED, ""),
    ],
)
def test_a_peer_is_called_where_its_key_is_listed_and_nobody_listens(
    tmp_path: Path, url: str, more: str, why: str
) -> None:
    settings = read(tmp_path, EXAMPLE.format(url=url) + more)
    (peer,) = settings.peers
    assert why in peer.why_no_http
    assert bool(peer.why_no_http) == bool(why)
    assert bool(listed(settings).unknown()) == (not why)
    assert why in listed(settings).why_not(peer)


def test_the_example_as_it_stands_is_off_and_says_why_and_how_to_change_that(tmp_path: Path) -> None:
    settings = read(tmp_path, EXAMPLE.format(url="http://kitchen.local:7676").replace("enabled = true\n", ""))
    assert not listed(settings).on
    told = listed(settings).why_not(settings.peers[0])
    for words in ("http.enabled is false", "sublet pair", "allow_plaintext", "fingerprint"):
        assert words in told
    assert listed(settings).place(PRINT) is None


def test_where_a_node_is_called_is_as_its_url_says(tmp_path: Path) -> None:
    settings = read(tmp_path, EXAMPLE.format(url="https://kitchen.local") + KEYED)
    assert listed(settings).place(PRINT) == Place("kitchen.local", 443, True, PRINT)
    settings = read(tmp_path, EXAMPLE.format(url="http://[::1]:81") + KEYED)
    assert listed(settings).place(PRINT) == Place("::1", 81, False, PRINT)


@pytest.mark.parametrize(
    "url",
    [
        "https://kitchen.local/path",
        "https://kitchen.local?x=1",
        "https://user@kitchen.local",
        "https://kitchen.local:0",
        "https://kitchen.local:99999",
        "https://küche.local",
        "ftp://kitchen.local",
        "kitchen.local:7676",
    ],
)
def test_a_url_is_scheme_host_and_port(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL of a host|more than scheme|ort"):
        PeerSettings(node_id="a", url=url)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:7676", "127.0.0.1", 7676),
        ("[::1]:0", "::1", 0),
        ("0.0.0.0:1", "0.0.0.0", 1),
        ("::1:7676", "", 0),
        ("[127.0.0.1]:1", "", 0),
        ("kitchen.local:1", "", 0),
        ("127.0.0.1:70000", "", 0),
        ("127.0.0.1:" + "9" * 5_000, "", 0),
        ("127.0.0.1", "", 0),
        (":7676", "", 0),
    ],
)
def test_where_to_listen_is_an_address_and_a_port(text: str, host: str, port: int) -> None:
    assert split_listen(text) == (host, port)
    if not host:
        with pytest.raises(ValueError, match="no address and port"):
            HttpSettings(listen=text)


def test_without_tls_it_listens_beyond_this_machine_only_where_that_is_said(tmp_path: Path) -> None:
    text = '[agent_federation.http]\nlisten = "0.0.0.0:7676"\ntls = false\n'
    with pytest.raises(SubletError, match="loopback"):
        read(tmp_path, text)
    assert read(tmp_path, text + OPEN).http.allow_plaintext
    assert not read(tmp_path, text.replace("0.0.0.0", "127.0.0.1")).http.tls
    assert read(tmp_path, text.replace("tls = false", "")).http.tls


def test_a_key_is_there_once(tmp_path: Path) -> None:
    twice = "".join(f'[[agent_federation.peers]]\nnode_id = "{name}"\n{KEYED}' for name in ("a", "b"))
    with pytest.raises(SubletError, match="fingerprint is there twice"):
        read(tmp_path, twice)


async def test_heartbeats_come_as_often_as_the_file_says_and_silence_counts_as_long() -> None:
    world = World()
    ann = world.add("ann", heartbeat_interval_secs=5, agent_timeout_secs=20)
    bob = world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B] and bob.addresses() == [A])
        beats = sum(what == "event" and b"agent.heartbeat" in raw for _, what, raw in ann.sent)
        world.pass_time(6)
        await until(lambda: sum(what == "event" and b"agent.heartbeat" in raw for _, what, raw in ann.sent) > beats)
        world.cut.add(frozenset(("ann", "bob")))
        world.pass_time(21)
        await until(lambda: not ann.addresses())
        await anyio.sleep(0.02)
        assert bob.addresses() == [A]


def test_there_are_so_many_peers_at_most() -> None:
    with pytest.raises(ValueError, match="1000"):
        Settings(peers=[PeerSettings(node_id=f"n{number}") for number in range(MAX_PEERS + 1)])


def test_keys_that_are_shown_are_kept_where_they_are_listed_and_forgotten_with_their_row() -> None:
    key = b"k" * 32
    peers = [PeerSettings(node_id="a", url="https://a.local", fingerprint=fingerprint(key))]
    now = Settings(http=HttpSettings(enabled=True), peers=peers)
    told: list[int] = []
    nodes = ListedNodes(lambda: now, set, lambda: told.append(1))
    assert not nodes.learn(b"x" * 32)
    assert nodes.learn(key)
    assert nodes.learn(key)
    assert (told, nodes.keys(), nodes.unknown()) == ([1], [key], [])
    assert nodes.admits(key)
    assert [(one.alias, one.paired) for one in nodes.known()] == [("a", False)]
    now = Settings(http=HttpSettings(enabled=True))
    assert (nodes.keys(), nodes.known(), nodes.admits(key)) == ([], [], False)


def test_a_paired_daemon_is_not_listed_once_more() -> None:
    key = b"k" * 32
    peers = [PeerSettings(node_id="a", url="https://a.local", fingerprint=fingerprint(key))]
    settings = Settings(http=HttpSettings(enabled=True), peers=peers)
    paired: set[str] = set()
    nodes = ListedNodes(lambda: settings, lambda: paired, lambda: None)
    nodes.learn(key)
    assert [one.alias for one in nodes.known()] == ["a"]  # as federation.toml calls it
    paired.add(node_id(key))
    assert nodes.known() == []
    assert nodes.place(fingerprint(key)) is not None
