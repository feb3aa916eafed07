"""Latency of ``decide()`` with 1,000 rules in four layers (goal: p99 at most 50 µs)."""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from _report import Row, add_options, show
from sublet.policy.config import PolicyConfig
from sublet.policy.defaults import CEILING
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.policy.model import Action, Kind, Resource, Subject
from sublet.policy.rules import KINDS, Condition, Layer, Rule

RULES = 1_000
DECISIONS = 50_000
GOAL_MICROSECONDS = 50.0


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


def measure(label: str, rng: random.Random, pairs: Sequence[tuple[Kind, Action]], goal: float | None = None) -> Row:
    """Return the distribution of many decisions, its p99 in microseconds first."""
    policy = build(rng, pairs)
    request = (
        Rule("request", "deny", "request", frozenset({"mcp"}), frozenset({Action.DELEGATION_CREATE}), resource="x"),
    )
    questions = []
    for _ in range(1_000):
        kind, action = rng.choice(pairs)
        resource = Resource(f"peer-{rng.randrange(1000)}", {"ttl_seconds": rng.randrange(7200)})
        questions.append((Subject(kind, f"name-{rng.randrange(100)}"), action, resource))
    taken = []
    for i in range(DECISIONS):
        subject, action, resource = questions[i % len(questions)]
        start = time.perf_counter_ns()
        policy.decide(subject, action, resource, request if i % 100 == 0 else ())
        taken.append((time.perf_counter_ns() - start) / 1_000)
    p99 = statistics.quantiles(taken, n=100)[98]
    detail = f"p50 {statistics.median(taken):.1f}"
    if goal is None:
        return Row(f"{label}, p99", p99, "µs", detail)
    return Row(f"{label}, p99", p99, "µs", detail, f"≤ {goal:.0f} µs", p99 <= goal)


def main() -> None:
    """Measure rules as they are spread in practice, and all of them about one action of one kind of subject."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    options = parser.parse_args()
    rng = random.Random(7)
    pairs = [(kind, action) for kind in KINDS for action in CEILING[kind] if action is not Action.WORKSPACE_LEND]
    rows = [
        measure(f"{RULES:,} rules over all actions", rng, pairs, GOAL_MICROSECONDS),
        measure(f"{RULES:,} rules on one action", rng, [("mcp", Action.DELEGATION_CREATE)]),
    ]
    show("policy", rows, options)


if __name__ == "__main__":
    main()
