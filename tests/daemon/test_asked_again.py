"""D20: a recorded decision, asked again with what the log has, gives the same answer, whichever gate asked."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sublet.daemon.api.call_api import AskedCall
from sublet.daemon.api.policy import ExplainRequest, Explanation
from sublet.daemon.approvals.call_gate import CallGate
from sublet.daemon.approvals.gate_parts import GateParts
from sublet.daemon.approvals.run_facts import RunFacts
from sublet.daemon.approvals.run_gate import RunGate
from sublet.daemon.governing.explain import asked_in, explained
from sublet.policy.attributes import ATTRIBUTES
from sublet.policy.config import parse
from sublet.policy.decision import Action, Subject, Value
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.policy.rules import KINDS
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import SubletError
from sublet.protocol.events import EventKeys
from sublet.supervisor.job import Deadline, JobResource
from sublet.supervisor.tool_gate import ToolCall
from support.approvals import Desk, desk
from support.budgets import examples


def _deny(name: str, action: Any, **more: Any) -> dict[str, Any]:
    return {"id": name, "effect": "deny", "action": action, **more}


CALL = "tool.call"
RULES: list[dict[str, Any]] = [
    _deny("no-secrets", CALL, resource="file.*", when={"path": {"within": "secrets"}}),
    _deny("no-env", CALL, resource="file.*", when={"path": {"like": "**/.env*"}}),
    {**_deny("ask", CALL, resource="shell.exec", when={"args.command": {"like": "rm*"}}), "effect": "approval"},
    _deny("small", CALL, when={"size_bytes": {"min": 40}}),
    _deny("short", "delegation.create", when={"ttl_seconds": {"min": 600}}),
    _deny("not-bob", ["delegation.create", "agent.ask"], resource="bob"),
    _deny("no-srv", "workspace.lend", when={"path": {"within": "/srv"}}),
    _deny("nights", "room.send", times={"from": "22:00", "to": "06:00"}),
    _deny("hosts", CALL, subject={"kind": "mcp", "name": "bad *"}),
    _deny("reviewers", CALL, subject={"role": "reviewer"}, resource="shell.exec"),
]

names = st.sampled_from(["", "bob", "claude code", "bad host", "coder", "x:y", "ünï"])
paths = st.lists(
    st.sampled_from(["secrets/key", "src/a.py", ".", "a/.env", "../up", "/etc/x", "meta/task", "a\x07b", "x" * 700]),
    max_size=3,
)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "command": st.sampled_from(["rm x", "ls", "rm x; ls"]),
        "path": st.sampled_from(["secrets/key", "src/a.py", "../x"]),
        "n": st.integers(0, 5),
        "text": st.text(max_size=50),
    },
)


def values(action: Action) -> st.SearchStrategy[dict[str, Any]]:
    """Return attributes that ``action`` has, of their types."""
    by_type: dict[str, st.SearchStrategy[Any]] = {
        "name": names.filter(bool),
        "path": st.sampled_from(["/srv/x", "/home/me/project", "/tmp"]),
        "number": st.integers(0, 1200),
        "flag": st.booleans(),
    }
    told = ATTRIBUTES.get(action, {})
    return st.fixed_dictionaries(
        {},
        optional={
            name: st.sampled_from(sorted(one.choices)) if one.type == "choice" else by_type[one.type]
            for name, one in told.items()
        },
    )


def asked_again(policy: Policy, entry: Mapping[str, JsonValue], args: dict[str, JsonValue]) -> Explanation | None:
    """Ask by what the log has; None where the log says that it has not all of it."""
    try:
        request, roots = asked_in(entry, args)
    except SubletError:
        assert entry.get("shortened")
        return None
    return explained(policy, request, lambda _: "", roots, recorded=True)


def same(policy: Policy, side: Desk, args: dict[str, JsonValue]) -> None:
    """Check every decision of the log."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for number, (kind, fields) in enumerate(side.audit.entries):
        if kind == "decision":
            found = asked_again(policy, {**fields, "kind": kind, "at": now, "seq": number}, args)
            if found is not None:
                assert (found.decision, found.layer, found.rule) == (
                    fields["decision"],
                    fields["layer"],
                    fields["rule"],
                )
    side.audit.entries.clear()


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_gate_of_every_operation(tmp_path: Path, data: st.DataObject) -> None:
    action = data.draw(st.sampled_from(sorted(Action)))
    kind = data.draw(st.sampled_from(KINDS))
    role = data.draw(st.sampled_from(["reviewer", "executor"])) if kind == "agent" else ""
    caller = Subject(kind, data.draw(names), ("/home/me", "/tmp"), role)
    resource = data.draw(
        st.sampled_from(["bob", "*", "shell.exec", "Bash", "file.read", "/srv/x", "/tmp/x", "a b", "x" * 600])
    )
    attributes: dict[str, Value] = data.draw(values(action))
    if action in (Action.TOOL_CALL, Action.CAPABILITY_RUN):
        attributes = {**tool_resource(resource, {}).attributes, **attributes}

    async def run() -> None:
        async with desk(tmp_path, cast("Any", RULES)) as side:
            try:
                await side.gatekeeper.ask(caller, action, resource, **cast("Any", attributes))
            except SubletError:
                assert side.audit.entries, "a refusal of what was tried is written down"
            same(side.policy, side, {})

    anyio.run(run)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tool=st.sampled_from(["file.read", "file.write", "file.search", "shell.exec", "Bash", "mcp.x.y", "acp.deploy"]),
    also=st.lists(st.sampled_from(["shell.exec", "deploy", "file.delete"]), max_size=2),
    touched=paths,
    args=arguments,
    directory=st.sampled_from(["workspace", "docs"]),
    role=st.sampled_from(["reviewer", "executor"]),
)
def test_the_gate_of_an_agents_tools(
    tmp_path: Path, tool: str, also: list[str], touched: list[str], args: dict[str, Any], directory: str, role: str
) -> None:
    shown = tuple(path if path.startswith("/") else f"{directory}/{path}" for path in touched)

    async def run() -> None:
        async with desk(tmp_path, cast("Any", RULES)) as side:
            facts = RunFacts(
                subject=Subject("agent", "coder", role=role),
                scope="ses_1",
                resources=[JobResource(name, Path(f"/mnt/{name}"), "rw") for name in ("workspace", "docs")],
                keys=EventKeys(),
                deadline=Deadline(anyio.current_time() + 60),
                delegation_id="dlg_1",
                peer="bob",
            )
            gate = RunGate(GateParts(side.gatekeeper, side.journal, side.grants, side.questions, side.approver), facts)
            verdict = await gate.ask(ToolCall(tool, args, "c1", shown, also=tuple(also)))
            assert verdict.allowed or side.audit.entries
            same(side.policy, side, args)

    anyio.run(run)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tool=st.sampled_from(["sublet.delegate", "sublet.directory", "capability.x"]),
    kind=st.sampled_from(["mcp", "human"]),
    name=names,
    args=arguments,
)
def test_the_gate_of_hosts_tools(tmp_path: Path, tool: str, kind: Any, name: str, args: dict[str, Any]) -> None:
    async def run() -> None:
        async with desk(tmp_path, cast("Any", RULES)) as side:
            parts = GateParts(side.gatekeeper, side.journal, side.grants, side.questions, side.approver)
            call = AskedCall(Subject(kind, name), Action.TOOL_CALL, tool_resource(tool, args), tool, args, "s")
            try:
                await CallGate(parts).begin(call, "there is none")
            except SubletError:
                assert side.audit.entries
            same(side.policy, side, args)

    anyio.run(run)


def test_what_can_not_be_asked_again_says_so(tmp_path: Path) -> None:
    for entry, said in (
        ({"kind": "outcome", "seq": 1}, "no decision"),
        ({"kind": "decision", "seq": 1, "left_out": "x"}, "whole question"),
        ({"kind": "decision", "seq": 1, "compared": ["args.command"]}, "does not keep"),
    ):
        with pytest.raises(SubletError, match=said):
            asked_in(cast("Any", entry), {})
    for fields in ({}, {"subject": "human"}, {"entry": 1, "subject": "human"}):
        with pytest.raises(ValueError, match="entry"):
            ExplainRequest(**cast("Any", fields))


def test_a_read_is_written_down_where_a_rule_says_so_and_nowhere_else(tmp_path: Path) -> None:
    record = {"id": "who-reads", "effect": "allow", "action": "session.read", "record": True}
    policy = Policy(Protected(tmp_path), parse({"version": 1, "role": {"human": [record]}}))

    async def run() -> None:
        async with desk(tmp_path) as side:
            for action, resource in (
                (Action.SESSION_READ, "s"), (Action.DELEGATION_READ, "*"), (Action.PEER_MANAGE, "*"),
                (Action.AUDIT_READ, "*"), (Action.DAEMON_CONTROL, "status"), (Action.ROOM_READ, "r"),
            ):  # fmt: skip
                await side.gatekeeper.ask(Subject("human"), action, resource)
            assert side.audit.entries == []
            side.policy.use(policy.prepare(()))
            await side.gatekeeper.ask(Subject("human"), Action.SESSION_READ, "s")
            await side.gatekeeper.ask(Subject("human"), Action.DELEGATION_READ, "*")
            assert [fields["rule"] for _, fields in side.audit.entries] == ["who-reads"]
            with pytest.raises(SubletError):
                await side.gatekeeper.ask(Subject("peer", "bob"), Action.SESSION_READ, "s")
            assert side.audit.entries[-1][1]["decision"] == "deny"

    anyio.run(run)
