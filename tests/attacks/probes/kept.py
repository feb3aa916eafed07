"""What peers, members and agents make the product keep: by names, messages, questions, notes and calls."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from nacl.signing import SigningKey

from attacks.kit.within import within
from attacks.probe import KeptProbe, Probe
from messaging.delivery.test_loops import LIMITS
from messaging.extensions.test_all_together import WITH
from sublet.a2a_client.client import MAX_SESSIONS, A2APeerLink
from sublet.a2a_server.ends import Ends
from sublet.a2a_server.pairing import Attempts
from sublet.daemon.lending.denial_notes import DenialNotes
from sublet.daemon.peering.nonces import NonceMemory
from sublet.daemon.ports.peer_link import PeerAddress
from sublet.daemon.rooms.answered import Answered
from sublet.daemon.storage.store import Store
from sublet.messaging.delivery.loops import Loops
from sublet.policy.config import parse
from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.engine import Policy
from sublet.policy.globs import MAX_MATCHERS, matcher, path_matcher
from sublet.policy.lending import Protected
from sublet.policy.request_rules import MAX_NAMES, told_narrowing
from sublet.protocol.assignment.prompts import Prompts
from sublet.protocol.errors import SubletError
from sublet.protocol.messages import FollowUp
from sublet.protocol.signing import MAX_CLOCK_SKEW_SECONDS
from sublet.protocol.times import rfc3339_of_ms
from sublet.supervisor.acp.asking import ToolQuestions
from sublet.supervisor.output import Capture
from support.approvals import Clock, call, desk
from support.gates import ListGate
from support.jobs import Log, job
from support.rooms import peers, shared_room

LONG: Final = "n" * 4_000
MANY: Final = 1_000


@contextlib.contextmanager
def _held(made: Any, *fill: Callable[[Any], object]) -> Iterator[object]:
    """Fill a part that lives as long as its daemon; what it may keep of a peer that is gone is its bound."""
    for one in fill:
        with contextlib.suppress(SubletError):
            one(made)
    yield made


# Rules


@contextlib.contextmanager
def _names() -> Iterator[object]:
    """Ask policy about names and paths without end."""
    rule = {"id": "r", "effect": "deny", "action": "tool.call", "resource": "a*b*c"}
    lend = {"id": "l", "effect": "deny", "action": "workspace.lend", "resource": "/**/x/**/y*"}
    policy = Policy(Protected(Path("/nowhere")), parse({"version": 1, "global": [rule, lend]}))
    for number in range(600):
        name = f"{number}{LONG}" if number % 2 else f"{number}a/b/" + "c/" * 100
        policy.decide(Subject("peer", name, role=name[:99]), Action.TOOL_CALL, Resource(name))
        policy.decide(Subject("agent", name), Action.WORKSPACE_LEND, Resource("/" + "d/" * 500 + str(number)))
    yield policy


@contextlib.contextmanager
def _narrowed() -> Iterator[object]:
    """Narrow requests by globs without end."""
    policy = Policy(Protected(Path("/nowhere")), parse({"version": 1}))
    for number in range(100):
        names = [f"mcp.{number}x{one}*{'y' * 60}?z*" for one in range(MAX_NAMES)]
        rules = told_narrowing({"deny": names, "only": [f"{name}q" for name in names]}).rules
        policy.decide(Subject("agent", "coder"), Action.TOOL_CALL, Resource("mcp.1x1"), rules)
    for number in range(2 * MAX_MATCHERS):
        path_matcher(f"/{number}/*{'y' * 60}/**")
        matcher(f"{number}*{'y' * 60}?z")
    yield policy


# Rooms


@contextlib.contextmanager
def _room() -> Iterator[object]:
    """Let a member fill a room by all that a room offers; then the room is forgotten."""
    rfc3339_of_ms.cache_clear()
    with contextlib.ExitStack() as stack:
        alice, eve = peers("alice", "eve", declarations=WITH)
        for one in (alice, eve):
            stack.callback(one.store.close)
        room = shared_room(alice, eve)
        loops = Loops(LIMITS)
        first = eve.do("message.send", room_id=room, body="first")["ref_id"]
        for number in range(30):
            ext = {"thread": {"root": first}, "reply_to": {"ref_id": first}, "channels": [f"c{number}"]}
            loops.admit(alice.engine, eve.id, {"room_id": room, "body": "x", "ext": ext})
            sent = eve.do("message.send", room_id=room, body="x" * 20_000, ext=ext)
            with contextlib.suppress(SubletError):
                eve.do("reactions.add", room_id=room, ref_id=sent["ref_id"], emoji="\u2764")
            with contextlib.suppress(SubletError):
                eve.do("mutable.update", room_id=room, ref_id=sent["ref_id"], body="y" * 20_000)
        eve.do("collab.update_acl", room_id=room, ref_id=first, mode="explicit", editors=[alice.id])
        alice.hear(eve.published())
        for number in range(30):
            eve.do("collab.edit", room_id=room, ref_id=first, index=0, delete=0, insert=f"{number}" * 500)
        alice.hear(eve.published())
        assert len(alice.do("timeline.list", room_id=room, limit=200)["refs"]) == 31
        alice.do("timeline.get_ref", room_id=room, ref_id=first)
        alice.do("collab.connect", room_id=room, ref_id=first)
        yield alice.engine
        alice.engine.forget_room(room)
        del loops


# What a daemon remembers


@contextlib.asynccontextmanager
async def _signed(base: Path) -> AsyncIterator[object]:
    """Let a peer sign messages without end; their nonces are forgotten once none can be replayed."""
    store = await Store.open(base / "it.db")
    clock = Clock()
    memory = NonceMemory(store, {}, clock, clock)
    for number in range(5_000):
        memory.first_seen(str(number), int(clock()))
        if number % 100 == 0:
            await store.write(lambda _: None)  # until it has kept up
    yield memory
    clock.ahead = 2 * MAX_CLOCK_SKEW_SECONDS
    memory.first_seen("later", int(clock()))
    await store.close()


@contextlib.asynccontextmanager
async def _asked(base: Path) -> AsyncIterator[object]:
    """Let an agent ask a person, and begin calls that never end."""
    allow = {"id": "a", "effect": "allow", "action": "tool.call", "resource": "file.*"}
    async with desk(base, [allow]) as side:
        gate = side.gate()
        for number in range(300):
            await gate.ask(call("file.read", f"c{number}", path=LONG + str(number)))
        yield side


@contextlib.contextmanager
def _told() -> Iterator[object]:
    """Let an agent by ACP begin calls and print without end."""
    with tempfile.TemporaryDirectory(prefix="kept") as base, asyncio.Runner() as runner:
        asking = ToolQuestions(replace(job(Path(base), ""), gate=ListGate()), Log())
        capture = Capture("stdout", lambda _: None)

        async def work() -> None:
            for number in range(MANY):
                await asking.may(call("file.read", f"c{number}", path=LONG), LONG)

        runner.run(work())
        for _ in range(MANY):
            capture.feed(LONG.encode() + b"\n")
        yield capture


def _follow_ups(made: list[Prompts]) -> None:
    for number in range(MANY):
        follow_up = FollowUp(id=f"f{number}", prompt=LONG + str(number))
        if (refusal := made[-1].refusal(follow_up)) is not None:
            raise refusal
        made[-1] = made[-1].take(follow_up)


@contextlib.asynccontextmanager
async def _addresses(_: Path) -> AsyncIterator[object]:
    """Let a peer move from address to address."""
    link = A2APeerLink(SigningKey(b"k" * 32), "node-a", "SHA256:x")
    for number in range(2 * MAX_SESSIONS):
        await link._session(PeerAddress("p", f"http://127.0.0.1:1/{number}", b"k" * 32, None))
    yield link
    await link.aclose()


PROBES: Sequence[Probe] = (
    KeptProbe(
        name="rules: names and paths without end",
        covers=("policy.globs:components", "policy.table:_subject_forms", "policy.table:_resource_forms"),
        attack=_names,
        left=4 << 20,
    ),
    KeptProbe(
        name="rules: requests that are narrowed by globs without end",
        covers=("policy.globs:matcher", "policy.globs:path_matcher", "policy.globs:_path_glob"),
        attack=_narrowed,
        left=8 << 20,
    ),
    KeptProbe(
        name="rooms: a member who fills a room by all that it offers",
        covers=(
            "protocol.times:rfc3339_of_ms",
            "messaging.documents.document:Document.__init__",
            "messaging.opening.open_documents:OpenDocuments.__init__",
            "messaging.opening.accepted_updates:AcceptedUpdates.__init__",
            "messaging.reading.reading:Reading.__init__",
            "messaging.texts.texts:Texts.__init__",
            "messaging.delivery.loops:Loops._count",
        ),
        attack=_room,
        left=8 << 20,
    ),
    KeptProbe(
        name="peers: nonces", covers=("daemon.peering.nonces:NonceMemory.__init__",), attack=lambda: within(_signed)
    ),
    KeptProbe(
        name="agents: calls that never end",
        covers=("daemon.approvals.run_gate:RunGate.__init__",),
        attack=lambda: within(_asked),
    ),
    KeptProbe(
        name="agents: calls by ACP that never end, and output",
        covers=("supervisor.acp.asking:ToolQuestions.__init__", "supervisor.output:Capture.__init__"),
        attack=_told,
    ),
    KeptProbe(
        name="peers: follow-ups",
        covers=("protocol.assignment.prompts:Prompts.take",),
        attack=lambda: _held([Prompts()], _follow_ups),
    ),
    KeptProbe(
        name="peers: refused changes",
        covers=("daemon.lending.denial_notes:DenialNotes.__init__",),
        attack=lambda: _held(DenialNotes(), lambda made: [made.add(LONG + str(n)) for n in range(MANY)]),
    ),
    KeptProbe(
        name="peers: ends of tasks",
        covers=("a2a_server.ends:Ends.__init__",),
        attack=lambda: _held(Ends(), lambda made: [made.claim(f"tsk_{n:032}") for n in range(10_000)]),
    ),
    KeptProbe(
        name="strangers: attempts to pair",
        covers=("a2a_server.pairing:Attempts.__init__",),
        attack=lambda: _held(Attempts(), lambda made: [made.allow(f"2001:db8::{n % 5_000:x}") for n in range(8_000)]),
    ),
    KeptProbe(
        name="members: answers",
        covers=("daemon.rooms.answered:Answered.__init__",),
        attack=lambda: _held(Answered(), lambda made: [made.note("@eve:a", n, f"#r{n}:a") for n in range(10_000)]),
        left=4 << 20,
    ),
    KeptProbe(
        name="peers: addresses that move",
        covers=("a2a_client.client:A2APeerLink.__init__",),
        attack=lambda: within(_addresses),
    ),
)
