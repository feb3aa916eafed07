"""Latency of ``decide()`` with 1,000 rules in four layers (goal: p99 at most 50 µs), beside casbin and cedarpy.

The peers are measured on the same rules and questions in the same run where they are installed
(``pip install casbin cedarpy``): exact names and prefixes with allow and deny, which all three can say.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

from _report import Row, add_options, show
from sublet.daemon.audit_log.log import AuditLog
from sublet.daemon.audit_log.memory import LogMemory
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.policy.config import PolicyConfig
from sublet.policy.decision import Action, Kind, Resource, Subject
from sublet.policy.defaults import CEILING
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.policy.rules import KINDS, Condition, Layer, Rule

RULES = 1_000
DECISIONS = 50_000
PEER_DECISIONS = 300
AUDITED = 2_000
GOAL_MICROSECONDS = 50.0
GOAL_RATIO = 0.2
GOAL_AUDIT_MICROSECONDS = 1_000.0

Question = tuple[Subject, Action, Resource]
PeerRule = tuple[str, str, str, str]
"""Id, effect, name of the caller, pattern of the resource."""


def build(rng: random.Random, pairs: Sequence[tuple[Kind, Action]]) -> Policy:
    """Return a policy whose rules are spread over ``pairs``, layers, names and kinds of pattern."""
    layers: list[Layer] = ["global", "role", "agent"]
    rules = []
    for i in range(RULES):
        kind, action = rng.choice(pairs)
        rules.append(
            Rule(
                id=f"rule-{i}",
                effect="deny" if rng.random() < 0.3 else "allow",
                layer=rng.choice(layers),
                kinds=frozenset({kind}),
                actions=frozenset({action}),
                name=rng.choice(["*", f"name-{rng.randrange(50)}", f"name-{rng.randrange(5)}*"]),
                resource=rng.choice([f"peer-{rng.randrange(500)}", f"peer-{rng.randrange(50)}*", f"*-{i}-?"]),
                when={"ttl_seconds": Condition(maximum=3600)} if rng.random() < 0.2 else {},
            )
        )
    return Policy(Protected(Path("/nowhere")), PolicyConfig(tuple(rules)))


def measured(ask: Callable[[int], object], count: int) -> list[float]:
    """Return how long each of ``count`` questions takes, in microseconds."""
    taken = []
    for i in range(count):
        start = time.perf_counter_ns()
        ask(i)
        taken.append((time.perf_counter_ns() - start) / 1_000)
    return taken


def measure(label: str, rng: random.Random, pairs: Sequence[tuple[Kind, Action]], *, fresh: bool = False) -> Row:
    """Return the distribution of many decisions, its p99 in microseconds first; ``fresh`` asks for new names always."""
    policy = build(rng, pairs)
    request = (
        Rule("request", "deny", "request", frozenset({"mcp"}), frozenset({Action.DELEGATION_CREATE}), resource="x"),
    )
    questions: list[Question] = []
    for i in range(DECISIONS if fresh else 1_000):
        kind, action = rng.choice(pairs)
        name = f"peer-{i}-{rng.randrange(1000)}" if fresh else f"peer-{rng.randrange(1000)}"
        resource = Resource(name, {"ttl_seconds": rng.randrange(7200)})
        questions.append((Subject(kind, f"name-{rng.randrange(100)}"), action, resource))

    def ask(i: int) -> object:
        subject, action, resource = questions[i % len(questions)]
        return policy.decide(subject, action, resource, request if i % 100 == 0 else ())

    taken = measured(ask, DECISIONS)
    p99 = statistics.quantiles(taken, n=100)[98]
    detail = f"p50 {statistics.median(taken):.1f}"
    if fresh:
        return Row(f"{label}, p99", p99, "µs", detail)
    return Row(f"{label}, p99", p99, "µs", detail, f"≤ {GOAL_MICROSECONDS:.0f} µs", p99 <= GOAL_MICROSECONDS)


def beside_peers(rng: random.Random) -> list[Row]:
    """Return our median on rules that casbin and cedar can say too, and its ratio to the faster of them."""
    rules = []
    for i in range(RULES):
        effect = "deny" if rng.random() < 0.3 else "allow"
        name, peer = f"name-{rng.randrange(50)}", f"peer-{rng.randrange(500)}{rng.choice(['', '*'])}"
        rules.append((f"rule-{i}", effect, name, peer))
    questions = [(f"name-{rng.randrange(60)}", f"peer-{rng.randrange(600)}") for _ in range(PEER_DECISIONS)]
    ours = Policy(
        Protected(Path("/nowhere")),
        PolicyConfig(
            tuple(
                Rule(
                    id_, "deny" if effect == "deny" else "allow", "role", frozenset({"mcp"}),
                    frozenset({Action.DELEGATION_CREATE}), name, peer,
                )
                for id_, effect, name, peer in rules
            )
        ),
    )  # fmt: skip

    def mine(i: int) -> bool:
        name, peer = questions[i % PEER_DECISIONS]
        return ours.decide(Subject("mcp", name), Action.DELEGATION_CREATE, Resource(peer)).allowed

    median = statistics.median(measured(mine, DECISIONS))
    peers: dict[str, float] = {}
    # Ours denies what no rule speaks of once a rule of the layer speaks of that caller, and else asks the layer below;
    # the peers know no layers, so only the time is compared.
    for label, make in (("casbin", _casbin), ("cedarpy", _cedar)):
        try:
            ask = make(rules, questions)
        except ImportError:
            continue
        peers[label] = statistics.median(measured(ask, PEER_DECISIONS))
    rows = [Row(f"{RULES:,} rules that peers can say, p50", median, "µs")]
    if peers:
        fastest = min(peers, key=lambda label: peers[label])
        told = ", ".join(f"{label} {peer:.0f} µs" for label, peer in peers.items())
        ratio = median / peers[fastest]
        rows = [
            Row(rows[0].what, median, "µs", "", f"≤ {GOAL_RATIO} of {fastest}", ratio <= GOAL_RATIO, told, ratio),
        ]
    return rows


def _casbin(
    rules: Sequence[tuple[str, str, str, str]], questions: Sequence[tuple[str, str]]
) -> Callable[[int], object]:
    casbin: Any = importlib.import_module("casbin")
    model = casbin.Model()
    model.load_model_from_text(
        "[request_definition]\nr = sub, obj\n[policy_definition]\np = sub, obj, eft\n"
        "[policy_effect]\ne = some(where (p.eft == allow)) && !some(where (p.eft == deny))\n"
        "[matchers]\nm = r.sub == p.sub && keyMatch(r.obj, p.obj)\n"
    )
    enforcer = casbin.Enforcer(model)
    enforcer.add_policies(sorted({(name, peer, effect) for _, effect, name, peer in rules}))
    return lambda i: enforcer.enforce(*questions[i])


def _cedar(rules: Sequence[PeerRule], questions: Sequence[tuple[str, str]]) -> Callable[[int], object]:
    cedarpy: Any = importlib.import_module("cedarpy")
    text = "\n".join(
        f'{"forbid" if effect == "deny" else "permit"}(principal == User::"{name}", action, resource) '
        f'when {{ resource.name like "{peer}" }};'
        for _, effect, name, peer in rules
    )
    policies = cedarpy.PolicySet.from_str(text)
    asked = [
        (
            {
                "principal": f'User::"{name}"',
                "action": 'Action::"create"',
                "resource": f'Peer::"{peer}"',
                "context": {},
            },
            cedarpy.Entities.from_json_str(
                json.dumps([{"uid": {"type": "Peer", "id": peer}, "attrs": {"name": peer}, "parents": []}])
            ),
        )
        for name, peer in questions
    ]
    return lambda i: cedarpy.is_authorized(asked[i][0], policies, asked[i][1])


async def audited() -> list[Row]:
    """Return what a question costs with its entry in the audit log: for looks, and for what waits for the disk."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        store = await Store.open(Path(directory) / "sublet.db")
        log = await AuditLog.open(Path(directory) / "log", LogMemory(store), SigningKey.generate())
        gate = Gatekeeper(Policy(Protected(Path("/nowhere"))), Journal(store), list, log)
        rows = []
        for label, action in (("looks", Action.DELEGATION_READ), ("changes something", Action.DELEGATION_CANCEL)):
            taken = []
            for i in range(AUDITED):
                start = time.perf_counter_ns()
                await gate.ask(Subject("mcp", "claude"), action, f"dlg_{i}")
                taken.append((time.perf_counter_ns() - start) / 1_000)
                await asyncio.sleep(0)
            p50 = statistics.median(taken)
            detail = f"p99 {statistics.quantiles(taken, n=100)[98]:.0f}"
            goal = f"≤ {GOAL_AUDIT_MICROSECONDS:,.0f} µs"
            rows.append(
                Row(f"with its audit entry, {label}, p50", p50, "µs", detail, goal, p50 <= GOAL_AUDIT_MICROSECONDS)
            )
        await log.close()
        await store.close()
        return rows


def main() -> None:
    """Measure rules as they are spread in practice, all of them about one action, the peers, and the audit log."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    options = parser.parse_args()
    rng = random.Random(7)
    pairs = [
        (kind, action) for kind in KINDS for action in sorted(CEILING[kind]) if action is not Action.WORKSPACE_LEND
    ]
    one: list[tuple[Kind, Action]] = [("mcp", Action.DELEGATION_CREATE)]
    rows = [
        measure(f"{RULES:,} rules over all actions", rng, pairs),
        measure(f"{RULES:,} rules on one action", rng, one),
        measure(f"{RULES:,} rules on one action, names never seen", rng, one, fresh=True),
        *beside_peers(rng),
        *asyncio.run(audited()),
    ]
    show("policy", rows, options)


if __name__ == "__main__":
    main()
