"""Federation: what a node that is paired, and lies or floods, makes this one do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from nacl.signing import SigningKey

from app import test_node_http
from attacks.kit.as_probe import throwing
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe, Reason
from daemon.federation import test_parts
from daemon.panels import test_panels
from federation import test_broadcasts, test_nodes
from mcp_server import test_panels_and_nodes
from node_http import test_between_nodes, test_hostile
from sublet.daemon.rooms.relayed_nodes import RelayedNodes
from sublet.federation.limits import Rate
from sublet.federation.ports import KnownNode
from sublet.federation.table import MAX_AGENTS_OF_NODE, AgentTable, TableFull
from sublet.messaging.syncing.replays import MAX_NONCES_OF_PEER
from sublet.protocol.federation.addresses import AgentAddress, node_name
from sublet.protocol.federation.envelope import MAX_ENVELOPE_BYTES, read_envelope
from sublet.protocol.federation.errors import TaskRefused
from sublet.protocol.federation.events import read_event
from sublet.protocol.federation.relayed import MAX_BOXES, MAX_QUESTION_BYTES, RelaySeals
from sublet.protocol.federation.relayed_keys import relayed_key
from sublet.protocol.federation.request_proof import read_proof
from sublet.protocol.ids import fingerprint, node_id

KEY = bytes(SigningKey(b"a" * 32).verify_key)
NODE = KnownNode(node_id(KEY), KEY, fingerprint(KEY), "mallory")


def _envelope(size: int) -> bytes:
    """Return an envelope of about ``size`` bytes whose signature is anybody's."""
    beat = {"event_type": "io.cis.agent.heartbeat", "agent_id": "a", "node_id": "b", "status": "idle", "timestamp": "t"}
    return json.dumps(
        {
            "event_id": "$1",
            "room_id": "!agent-federation-default:a",
            "sender": "@node:b",
            "type": "io.cis.agent.heartbeat",
            "content": {"batch": [beat] * max(1, size // 110)},
            "origin": "b",
            "origin_server_ts": 0,
            "hashes": {"sha256": ""},
            "sublet": {"wire": 1, "node": "node-" + "a" * 16, "recipient": "SHA256:" + "A" * 43},
            "signatures": {"b": {"ed25519:0": "A" * 86 + "=="}},
        }
    ).encode()


def _read(raw: bytes) -> None:
    with suppress(TaskRefused):
        read_envelope(raw).verified(KEY, recipient="SHA256:" + "A" * 43, now=0)


def _sealed(size: int) -> tuple[RelaySeals, bytes]:
    """Return who opens it, and a question of somebody else's of about ``size`` bytes."""
    return RelaySeals(SigningKey(b"b" * 32)), RelaySeals(SigningKey(b"e" * 32)).ask(KEY, "event", b"x" * size, 0)[0]


def _open_sealed(made: tuple[RelaySeals, bytes]) -> None:
    with suppress(TaskRefused):
        made[0].read_question(KEY, "event", made[1])


@contextmanager
def _peers() -> Iterator[object]:
    seals = RelaySeals(SigningKey(b"b" * 32))
    for number in range(2 * MAX_BOXES):
        seals.ask(bytes(SigningKey(number.to_bytes(32, "big")).verify_key), "server", b"", 0)
    yield seals


@contextmanager
def _questions() -> Iterator[object]:
    """A node that is paired asks more often than anybody remembers, each time something else."""
    nodes, asks = (
        RelayedNodes(SigningKey(b"b" * 32), {NODE.id: NODE}.get, lambda: 0.0),
        RelaySeals(SigningKey(b"a" * 32)),
    )
    key, own = relayed_key("event", nodes.own, NODE.id), bytes(SigningKey(b"b" * 32).verify_key)
    for _ in range(2 * MAX_NONCES_OF_PEER):
        nodes.opened("event", key, asks.ask(own, "event", b"", 0)[0])
    yield nodes


def _event(size: int) -> dict[str, object]:
    return {"event_type": "io.cis.agent.registered", "capabilities": ["x"] * (size // 8), "agent_id": "a" * size}


def _read_event(content: dict[str, object]) -> None:
    with suppress(TaskRefused):
        read_event(content)


@contextmanager
def _names() -> Iterator[object]:
    rate = Rate(1, 1, lambda: 0.0)
    for number in range(50_000):
        rate.take(f"node-{number}/agent")
    yield rate


@contextmanager
def _agents() -> Iterator[object]:
    table, node = AgentTable(), node_name("mallory.local")
    for number in range(2 * MAX_AGENTS_OF_NODE):
        with suppress(TableFull):
            table.register(AgentAddress(f"a{number}", node), "x", [f"c{number}"], steady=0, wall=0)
    yield table
    table.remove_node(node)


PROBES: list[Probe] = [
    CostProbe(
        name="federation: an envelope that nobody has signed",
        covers=["protocol.federation.envelope:read_envelope"],
        make=_envelope,
        run=_read,
        most=MAX_ENVELOPE_BYTES,
    ),
    CostProbe(
        name="federation: a question over a relay that another one has sealed",
        covers=["protocol.federation.relayed:RelaySeals.read_question"],
        make=_sealed,
        run=_open_sealed,
        most=MAX_QUESTION_BYTES // 2,
    ),
    KeptProbe(
        name="federation: more peers than shared keys are kept for",
        covers=["protocol.federation.relayed:RelaySeals.__init__"],
        attack=_peers,
        left=2 << 20,
    ),
    KeptProbe(
        name="federation: questions over a relay without end",
        covers=["daemon.rooms.relayed_nodes:RelayedNodes.__init__"],
        attack=_questions,
        left=4 << 20,
    ),
    CostProbe(
        name="federation: an event with too much of everything",
        covers=["protocol.federation.events:read_event"],
        make=_event,
        run=_read_event,
    ),
    KeptProbe(
        name="federation: names without end",
        covers=["federation.limits:Rate.__init__"],
        attack=_names,
        left=4 << 20,
    ),
    KeptProbe(
        name="federation: a node with too many agents",
        covers=["federation.table:AgentTable.register"],
        attack=_agents,
    ),
    FailureProbe(
        name="federation: a node that is silent, comes back, is killed and asks again",
        covers=[
            "federation.node:Federation.serve",
            "federation.post:Post._sent",
            "federation.presence:Presence.leave",
            "federation.asking:Asking._asked",
            "federation.asking:Asking._sent_first",
            "federation.working:Working._resend",
        ],
        throw=throwing(
            test_nodes.test_a_silent_node_is_gone_after_a_time_and_comes_back,
            test_nodes.test_a_task_that_a_kill_interrupted_is_answered_so_and_never_run_again,
            test_nodes.test_a_task_for_a_node_that_is_away_waits_where_that_was_asked,
        ),
    ),
    FailureProbe(
        name="federation: a node that refuses what is said to all",
        covers=["federation.broadcasts:Broadcasts.say"],
        throw=throwing(test_broadcasts.test_members_of_the_room_hear_it_and_nobody_else),
    ),
    FailureProbe(
        name="panels: members that fail, are refused, are stopped, and a kill in the middle",
        covers=[
            "daemon.panels.runs:PanelRuns._drive",
            "daemon.panels.runs:PanelRuns._ended",
            "daemon.panels.runs:PanelRuns._watch_time",
        ],
        throw=throwing(
            test_panels.test_the_stop_rule_a_cancel_and_the_time_of_agents_end_who_works_and_tell_why,
            test_panels.test_a_panel_begins_whole_or_not_at_all_and_once_for_one_key,
            test_panels.test_what_a_kill_leaves_is_gone_on_with,
        ),
    ),
    FailureProbe(
        name="panels: a host that follows one",
        covers=["mcp_server.panel_tools:_followed"],
        throw=throwing(test_panels_and_nodes.test_one_handle_begins_follows_compares_takes_and_stops_a_panel),
    ),
    FailureProbe(
        name="federation: a file of the owner's that is none",
        covers=["daemon.federation.settings_file:SettingsFile.watch"],
        throw=throwing(test_parts.test_the_file_is_watched_and_who_looks_is_told),
    ),
    FailureProbe(
        name="federation over HTTP: a port that is taken, another key, a body without end, an old certificate",
        covers=[
            "app.node_http:NodeHttp._keep_certificates",
            "app.node_http:NodeHttp._listen",
            "app.node_http:NodeHttp.serve",
            "node_http.calling:NodeCaller.aclose",
            "node_http.calling:NodeCaller._learn_all",
            "node_http.calling:NodeCaller.serve",
            "node_http.certificates:NodeCertificates._context",
            "node_http.gate:_body",
        ],
        throw=throwing(
            test_node_http.test_a_port_that_is_taken_is_told_and_tried_again,
            test_node_http.test_a_node_that_is_listed_later_waits_for_none_of_those_that_do_not_answer,
            test_between_nodes.test_another_key_at_the_place_of_a_node_is_told_and_gets_nothing,
            test_hostile.test_what_a_listed_node_sends_is_bounded,
        ),
    ),
    CostProbe(
        name="federation over HTTP: a header that proves nothing",
        covers=["protocol.federation.request_proof:read_proof"],
        make=lambda size: 'Sublet-Node key="' + "A" * size,
        run=read_proof,
    ),
    Reason(
        name="federation: the journal's file, and a field of an answer",
        covers=["daemon.federation.ledger:FederationLedger._open", "daemon.api.federation:NodeView"],
        why="a fixed name in the daemon's own state directory; and a field that holds one number",
    ),
    Reason(
        name="federation: peers as nodes",
        covers=["app.federation:known_node"],
        why="of peers that a person has paired, as many as there may be",
    ),
]
