"""Pairing by the command line, and what an attacker, or a person in a hurry, may try with it (DESIGN 4.2, 9).

A daemon answers ten attempts per minute and address, so the tests take turns in whom they knock at: Carol's links are
attacked, Ann's secret is guessed, and with Bob the pairing itself is tried.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from sublet.daemon.api.daemon import SHOW_STATUS
from sublet.daemon.api.events import READ_EVENTS, ReadEvents
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.peers import CREATE_PAIR_LINK, LIST_PEERS, REMOVE_PEER, CreatePairLink, OnePeer, PeerView
from sublet.protocol.events import EventKind
from support.daemons import SHELL_AGENT, Daemon, wait_for
from support.leases import ask, begin, delegate, finish, marker, mount_of, processes_with

Three = tuple[Daemon, Daemon, Daemon]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    """Ann, Bob and Carol; nobody is paired."""
    base = tmp_path_factory.mktemp("pairing")
    three = (Daemon(base / "ann"), Daemon(base / "bob"), Daemon(base / "carol"))
    try:
        for daemon in three:
            daemon.up(agent=SHELL_AGENT)
        yield three
    finally:
        for daemon in three:
            daemon.down()
        assert [daemon.mounts for daemon in three] == [[], [], []]


@pytest.fixture(autouse=True)
def strangers(daemons: Three) -> Iterator[None]:
    """Every test ends with all of them strangers again."""
    yield
    for daemon in daemons:
        for peer in peers(daemon):
            forget(daemon, peer.name)


def link_of(daemon: Daemon) -> str:
    """Return a fresh link of ``daemon``."""
    return ask(daemon, lambda client: client.call(CREATE_PAIR_LINK, CreatePairLink())).link


def peers(daemon: Daemon) -> list[PeerView]:
    """Return whom ``daemon`` knows."""
    return ask(daemon, lambda client: client.call(LIST_PEERS, Nothing()))


def forget(daemon: Daemon, name: str) -> None:
    """Remove a peer."""
    ask(daemon, lambda client: client.call(REMOVE_PEER, OnePeer(name=name)))


def add(daemon: Daemon, link: str, name: str = "bob") -> tuple[int, dict[str, Any]]:
    """Use a link by the command line; return the exit status and what was printed."""
    done = daemon.run("peers", "add", link, "--name", name, "--json", check=None)
    assert "Traceback" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


def refusal(outcome: tuple[int, dict[str, Any]]) -> tuple[int, str]:
    """Return exit status and code of an attempt that failed, having seen that it says what to do next."""
    status, body = outcome
    assert body["error"]["hint"], body
    return status, body["error"]["code"]


def changed(link: str, field: int, replacement: str | None = None) -> str:
    """Return a link of which one field after the ``#`` has another value, of the same form by default."""
    address, _, fragment = link.partition("#")
    parts = fragment.split(".")
    flipped = ("B" if parts[field][0] == "A" else "A") + parts[field][1:]
    parts[field] = flipped if replacement is None else replacement
    return f"{address}#{'.'.join(parts)}"


KEY, TLS, TOKEN_ID, SECRET, EXPIRES = range(1, 6)


def test_a_link_pairs_both_ways_once(daemons: Three) -> None:
    ann, bob, carol = daemons
    link = carol.json("pair")["link"]

    status, peer = add(ann, link)

    assert (status, peer["fingerprint"]) == (0, carol.info["fingerprint"])
    assert [known.fingerprint for known in peers(carol)] == [ann.info["fingerprint"]]
    assert refusal(add(bob, link)) == (5, "TOKEN_INVALID")
    assert [known.fingerprint for known in peers(carol)] == [ann.info["fingerprint"]]
    assert peers(bob) == []


def test_of_two_that_use_a_link_at_once_one_is_paired(daemons: Three) -> None:
    ann, bob, carol = daemons
    link = link_of(carol)

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda daemon: add(daemon, link, "carol"), (ann, bob)))

    assert sorted(status for status, _ in outcomes) == [0, 5]
    winner = (ann, bob)[[status for status, _ in outcomes].index(0)]
    assert [known.fingerprint for known in peers(carol)] == [winner.info["fingerprint"]]
    assert sorted(len(peers(daemon)) for daemon in (ann, bob)) == [0, 1]


def test_a_link_that_is_too_old_is_refused(daemons: Three) -> None:
    ann, _, carol = daemons
    link = ask(carol, lambda client: client.call(CREATE_PAIR_LINK, CreatePairLink(ttl_seconds=1))).link
    expires = int(link.rpartition(".")[2])
    wait_for(lambda: time.time() > expires, 10, "the link's end")

    assert refusal(add(ann, link)) == (5, "TOKEN_INVALID")
    # The time in a link is only for those who hold it: what counts is what its maker remembers.
    assert refusal(add(ann, changed(link, EXPIRES, "9999999999"))) == (5, "TOKEN_INVALID")
    assert peers(ann) == peers(carol) == []


def test_a_link_that_was_tampered_with_pairs_nobody_and_the_true_one_still_works(daemons: Three) -> None:
    ann, _, carol = daemons
    link = link_of(carol)

    for field in (KEY, TOKEN_ID, SECRET):
        assert refusal(add(ann, changed(link, field))) == (5, "TOKEN_INVALID")
        assert peers(ann) == peers(carol) == []

    assert add(ann, link)[0] == 0


def test_a_link_that_leads_to_somebody_else_pairs_nobody(daemons: Three) -> None:
    """Carol answers at the address of a link that names Bob's key."""
    ann, bob, carol = daemons
    fragment = link_of(bob).partition("#")[2]

    outcome = add(ann, f"sublet+{carol.info['a2a_url']}/#{fragment}")

    assert refusal(outcome) == (5, "TOKEN_INVALID")
    assert peers(ann) == peers(bob) == peers(carol) == []


def test_wrong_secrets_use_a_link_up(daemons: Three) -> None:
    ann, bob, _ = daemons
    link = link_of(ann)

    for _ in range(5):
        assert refusal(add(bob, changed(link, SECRET), "ann")) == (5, "TOKEN_INVALID")

    assert refusal(add(bob, link, "ann")) == (5, "TOKEN_INVALID")
    assert peers(ann) == []


@pytest.mark.parametrize(
    "link",
    [
        "",
        "hello",
        "sublet+http://127.0.0.1:1/",
        "sublet+http://127.0.0.1:1/#1.a.b.c.d.e",
        "sublet+http://10.1.2.3:8642/#1.{key}.-.{id}.{secret}.9999999999",
        "sublet+http://localhost.evil.example:8642/#1.{key}.-.{id}.{secret}.9999999999",
        "sublet+file:///etc/passwd#1.{key}.-.{id}.{secret}.9999999999",
        "sublet+https://user:pw@127.0.0.1:8642/#1.{key}.-.{id}.{secret}.9999999999",
        "sublet+https://0.0.0.0:8642/#1.{key}.-.{id}.{secret}.9999999999",
        "sublet+https://2130706433:8642/#1.{key}.-.{id}.{secret}.9999999999",
        "sublet+https://127.0.0.1:8642/../x#1.{key}.-.{id}.{secret}.9999999999",
        "sublet+https://127.0.0.1:8642/%2e%2e#1.{key}.-.{id}.{secret}.9999999999",
        "--link",
        "x" * 5000,
    ],
)
def test_what_is_no_link_is_a_wrong_argument(daemons: Three, link: str) -> None:
    ann = daemons[0]
    text = link.format(key="A" * 43, id="A" * 12, secret="A" * 32)

    done = ann.run("peers", "add", "--name", "bob", "--json", "--", text, check=(2,))

    assert json.loads(done.stdout)["error"]["code"] == "INVALID_ARGUMENT"
    assert "Traceback" not in done.stderr


def test_what_is_no_name_is_a_wrong_argument_and_the_link_stays(daemons: Three) -> None:
    ann, bob, _ = daemons
    link = link_of(bob)

    for name in ("", "Bob", "../bob", "-bob", "bob/reviewer", "b" * 64):
        assert refusal(add(ann, link, name)) == (2, "INVALID_ARGUMENT")

    assert add(ann, link)[0] == 0


def test_a_daemon_does_not_pair_with_itself(daemons: Three) -> None:
    bob = daemons[1]

    assert refusal(add(bob, link_of(bob))) == (2, "INVALID_ARGUMENT")
    assert peers(bob) == []


def test_a_name_is_not_given_to_another_key(daemons: Three) -> None:
    ann, bob, carol = daemons
    assert add(ann, link_of(bob))[0] == 0

    outcome = add(ann, link_of(carol))

    assert refusal(outcome) == (5, "KEY_CHANGED")
    assert bob.info["fingerprint"] in outcome[1]["error"]["message"]
    assert carol.info["fingerprint"] in outcome[1]["error"]["message"]
    assert [peer.fingerprint for peer in peers(ann)] == [bob.info["fingerprint"]]
    assert peers(carol) == []
    seen = ask(ann, lambda client: client.call(READ_EVENTS, ReadEvents(cursor=0, limit=500))).events
    told = [event.data for event in seen if event.kind is EventKind.PEER_KEY_CHANGED]
    assert told[-1] == {"name": "bob", "pinned": bob.info["fingerprint"], "shown": carol.info["fingerprint"]}


def test_pairing_counts_both_ways_and_again_only_renames(daemons: Three, tmp_path: Path) -> None:
    ann, bob, _ = daemons

    assert add(ann, link_of(bob), "bob")[0] == 0
    assert add(ann, link_of(bob), "robert")[0] == 0

    assert [peer.name for peer in peers(ann)] == ["robert"]
    (known,) = peers(bob)
    ended = delegate(bob, tmp_path, "echo hello > mark", peer=known.name)
    assert ended["state"] == "completed"
    assert (tmp_path / "mark").read_text() == "hello\n"


def test_a_stranger_and_a_removed_peer_are_declined(daemons: Three, tmp_path: Path) -> None:
    ann, bob, _ = daemons
    (tmp_path / "file").write_text("untouched\n")
    assert add(ann, link_of(bob))[0] == 0
    forget(bob, peers(bob)[0].name)

    done = ann.run("delegate", str(tmp_path), "--to", "bob", "echo > mark; rm file", "--json", check=(5,))

    ended = json.loads(done.stdout)
    assert (ended["state"], ended["error"]["code"]) == ("error", "AUTH_FAILED")
    assert "air again" in ended["error"]["hint"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert ask(bob, lambda client: client.call(SHOW_STATUS, Nothing())).assignments_active == 0
    assert add(ann, link_of(bob))[0] == 0, "pairing again mends it"
    assert delegate(ann, tmp_path, "true")["state"] == "completed"


@pytest.mark.parametrize(("who", "end"), [("lender", "CANCELLED"), ("worker", "AUTH_FAILED")])
def test_removing_a_peer_ends_what_is_under_way_with_it(daemons: Three, tmp_path: Path, who: str, end: str) -> None:
    ann, bob, _ = daemons
    assert add(ann, link_of(bob))[0] == 0
    sign = marker()
    delegation = begin(ann, tmp_path, f"echo > begun; sleep {sign}; echo > late")
    wait_for(lambda: (tmp_path / "begun").exists(), 30, "the work")

    if who == "lender":
        ann.run("peers", "remove", "bob")
    else:
        bob.run("peers", "remove", peers(bob)[0].name)

    ended = finish(ann, delegation)
    assert ended.error is not None
    assert ended.error.code == end
    wait_for(lambda: not processes_with(sign), 20, "the end of the work")
    wait_for(lambda: not mount_of(bob, delegation).exists(), 20, "the end of the mount")
    assert [path.name for path in tmp_path.iterdir()] == ["begun"]


def test_an_unknown_peer_is_named(daemons: Three, tmp_path: Path) -> None:
    ended = delegate(daemons[0], tmp_path, "true", peer="nobody")
    assert ended["error"]["code"] == "PEER_UNKNOWN"
    done = daemons[0].run("peers", "remove", "nobody", "--json", check=(1,))
    assert json.loads(done.stdout)["error"]["code"] == "PEER_UNKNOWN"


def test_a_link_prints_alone_and_nothing_else_holds_its_secret(daemons: Three) -> None:
    bob = daemons[1]

    done = bob.run("pair")

    link = done.stdout.strip()
    assert re.fullmatch(r"sublet\+http://127\.0\.0\.1:\d+/#1\.[A-Za-z0-9_.-]+", link)
    secret = link.split(".")[-2]
    assert secret not in done.stderr
    found = subprocess.run(["grep", "-rlaF", secret, str(bob.home)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (1, "")


def test_who_knocks_without_end_is_made_to_wait(daemons: Three) -> None:
    """The pairing route answers anybody, so it bounds how often; what it says does not tell good ids from bad ones."""
    ann = daemons[0]
    body = {
        **dict.fromkeys(("token_id", "node_id", "public_key", "name_hint", "nonce", "proof", "signature"), "x"),
        "a2a_url": None,
        "tls_certificate": None,
    }
    with httpx.Client(base_url=ann.info["a2a_url"], trust_env=False) as client:
        answers = [client.post("/sublet/v1/pair", json=body) for _ in range(12)]
    assert {answer.status_code for answer in answers} <= {403, 429}
    assert answers[-1].status_code == 429
    assert answers[-1].headers["retry-after"]
    assert peers(ann) == []
