"""Peers, tokens, lend roots, the daemon, approvals, modules and replays: what travels, and who may ask for it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import httpx
import pytest
from pydantic import TypeAdapter, ValidationError

from sublet.cli.errors import sole_error
from sublet.daemon.api.approvals import (
    APPROVE,
    APPROVE_BY_PASSPHRASE,
    DENY_APPROVAL,
    FORGET_APPROVER,
    GET_APPROVAL,
    GET_APPROVER,
    ISSUE_GRANT,
    LIST_APPROVALS,
    LIST_GRANTS,
    REVOKE_GRANT,
    SET_APPROVER,
    ApproveRequest,
    ApproverView,
    DenyApproval,
    ForgetApprover,
    IssueGrant,
    ListApprovals,
    ListGrants,
    OneApproval,
    OneGrant,
    PassphraseApproval,
    SetApprover,
)
from sublet.daemon.api.base import Request
from sublet.daemon.api.capabilities import (
    INSPECT_CAPABILITY,
    LIST_CAPABILITIES,
    RUN_CAPABILITY,
    VERIFY_CAPABILITY,
    CapabilityChecks,
    CapabilityDetail,
    CapabilityList,
    CapabilityRun,
    InspectCapability,
    RunCapability,
    VerifyCapability,
)
from sublet.daemon.api.daemon import (
    RELOAD,
    RUN_DOCTOR,
    SHOW_STATUS,
    STOP,
    Check,
    ReloadReport,
    Stopping,
)
from sublet.daemon.api.gateways import (
    GET_GATEWAY,
    LIST_GATEWAYS,
    SEND_TO_GATEWAY,
    START_GATEWAY,
    STOP_GATEWAY,
    GatewayDetail,
    GatewayList,
    GatewaySent,
    GatewayView,
    OneGateway,
    SendToGateway,
)
from sublet.daemon.api.lend_roots import ADD_LEND_ROOT, LIST_LEND_ROOTS, REMOVE_LEND_ROOT, LendRoot
from sublet.daemon.api.operation import AnyOperation, Nothing, Operation
from sublet.daemon.api.peers import (
    ADD_PEER,
    CREATE_PAIR_LINK,
    LIST_PAIR_LINKS,
    LIST_PEERS,
    REMOVE_PEER,
    RENAME_PEER,
    SHOW_DIRECTORY,
    AddPeer,
    CreatePairLink,
    Directory,
    OnePeer,
    PairLink,
    PairLinkView,
    PeerView,
    RenamePeer,
)
from sublet.daemon.api.replays import REPLAY, ReplayRequest, ReplayView
from sublet.daemon.api.tokens import CREATE_TOKEN, LIST_TOKENS, REVOKE_TOKEN, CreateToken, OneToken, TokenView
from sublet.daemon.config.paths import Home, resolve_home
from sublet.daemon.control.client import ControlClient
from sublet.daemon.control.peer_service import PeerParts, PeerService
from sublet.daemon.control.server import ControlServer
from sublet.daemon.control.state_service import StateService
from sublet.daemon.control.token_service import TokenService
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.governing.lend_root_service import LendRootService
from sublet.daemon.operations.answers import OWNER
from sublet.daemon.operations.table import OperationTable
from sublet.policy.decision import Kind, Subject
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.statements import SignedStatement, Statement
from support.daemon_double import STATUS, DaemonDouble
from support.decisions import KeptDecisions
from support.effects import AskedPolicy, Effect, LendRoots, effects
from support.fake_approvals import WAITING, WIDE

pytestmark = pytest.mark.anyio

KINDS: tuple[Kind, ...] = get_args(Kind)
PEER = PeerView(name="bob", node_id="n", fingerprint="f", a2a_url=None, paired_at="t")
DIRECTORY = Directory(node_id="n", peers=[PEER], lend_roots=["/w"])
LINK = PairLink(link="l", expires_at="t", a2a_url="u", fingerprint="f")
MADE = PairLinkView(id="0a", state="open", made_at="t", made_by="human", expires_at="t")
TOKEN = TokenView(name="ci", created_at="t")
SIGNED = SignedStatement(statement=Statement(daemon="n", decision="approve", nonce="0" * 32, at=1), signature="s")
SIGNED_JSON = SIGNED.model_dump(mode="json")
APPROVER = ApproverView(daemon="n", public_key=None, fingerprint=None, made_at=None, reset_at=None, sealed=None)
TERMS = {"ttl_seconds": 300, "max_uses": 1, "any_arguments": False, "when": {}}
GATEWAY = GatewayView(
    id="echo", name="E", direction="both", protocol="stdio", modes=["sync"], load="lazy", state="stopped"
)


@dataclass(frozen=True)
class Call:
    """An operation, and its request as an older client sends it: every argument, in path, query or body."""

    operation: Operation[Any, Any]
    request: Request
    answer: object
    target: str
    body: dict[str, Any] | None = None

    @property
    def method(self) -> str:
        return self.operation.method


CALLS = [
    Call(SHOW_DIRECTORY, Nothing(), DIRECTORY, "/v1/directory"),
    Call(CREATE_PAIR_LINK, CreatePairLink(), LINK, "/v1/pair-links", {"ttl_seconds": 600}),
    Call(CREATE_PAIR_LINK, CreatePairLink(ttl_seconds=5), LINK, "/v1/pair-links", {"ttl_seconds": 5}),
    Call(LIST_PAIR_LINKS, Nothing(), [MADE], "/v1/pair-links"),
    Call(ADD_PEER, AddPeer(link="l", name="bob"), PEER, "/v1/peers", {"link": "l", "name": "bob"}),
    Call(LIST_PEERS, Nothing(), [PEER], "/v1/peers"),
    Call(
        RENAME_PEER,
        RenamePeer(name="bob", new_name="robert"),
        PEER,
        "/v1/peers/bob/rename",
        {"new_name": "robert"},
    ),
    Call(REMOVE_PEER, OnePeer(name="bob"), PEER, "/v1/peers/bob"),
    Call(CREATE_TOKEN, CreateToken(name="ci"), TOKEN, "/v1/tokens", {"name": "ci", "ttl_seconds": None}),
    Call(CREATE_TOKEN, CreateToken(name="ci", ttl_seconds=9), TOKEN, "/v1/tokens", {"name": "ci", "ttl_seconds": 9}),
    Call(LIST_TOKENS, Nothing(), [TOKEN], "/v1/tokens"),
    Call(REVOKE_TOKEN, OneToken(name="ci"), TOKEN, "/v1/tokens/ci"),
    Call(LIST_LEND_ROOTS, Nothing(), ["/w"], "/v1/lend-roots"),
    Call(ADD_LEND_ROOT, LendRoot(path="/w ü"), ["/w ü"], "/v1/lend-roots", {"path": "/w ü"}),
    Call(REMOVE_LEND_ROOT, LendRoot(path="/w&x ü"), [], "/v1/lend-roots?path=%2Fw%26x+%C3%BC"),
    Call(SHOW_STATUS, Nothing(), STATUS, "/v1/status"),
    Call(RUN_DOCTOR, Nothing(), [Check(name="n", ok=True, detail="d")], "/v1/doctor"),
    Call(RELOAD, Nothing(), ReloadReport(agents=["a"], policy_file="/p", agent_file="/a"), "/v1/reload", {}),
    Call(STOP, Nothing(), Stopping(), "/v1/shutdown", {}),
    Call(GET_APPROVER, Nothing(), APPROVER, "/v1/approver"),
    Call(
        SET_APPROVER,
        SetApprover(public_key="k", sealed="s", signed=SIGNED),
        APPROVER,
        "/v1/approver",
        {"public_key": "k", "sealed": "s", "signed": SIGNED_JSON},
    ),
    Call(
        FORGET_APPROVER,
        ForgetApprover(reset=True),
        APPROVER,
        "/v1/approver/forget",
        {"signed": None, "reset": True},
    ),
    Call(LIST_APPROVALS, ListApprovals(), [WAITING], "/v1/approvals?limit=100&pending=true"),
    Call(LIST_APPROVALS, ListApprovals(limit=3, pending=False), [WAITING], "/v1/approvals?limit=3&pending=false"),
    Call(GET_APPROVAL, OneApproval(approval_id="apr_1"), WAITING, "/v1/approvals/apr_1"),
    Call(
        APPROVE,
        ApproveRequest(approval_id="apr_1", signed=SIGNED),
        WAITING,
        "/v1/approvals/apr_1/approve",
        {"signed": SIGNED_JSON},
    ),
    Call(
        APPROVE_BY_PASSPHRASE,
        PassphraseApproval(approval_id="apr_1", passphrase="p\u2028q"),
        WAITING,
        "/v1/approvals/apr_1/passphrase",
        {"passphrase": "p\u2028q", "terms": TERMS},
    ),
    Call(DENY_APPROVAL, DenyApproval(approval_id="apr_1"), WAITING, "/v1/approvals/apr_1/deny", {}),
    Call(LIST_GRANTS, ListGrants(), [WIDE], "/v1/grants?limit=100&usable=false"),
    Call(LIST_GRANTS, ListGrants(limit=7, usable=True), [WIDE], "/v1/grants?limit=7&usable=true"),
    Call(
        ISSUE_GRANT,
        IssueGrant(agent="coder", tool="shell.exec", arguments={"a": [1.5, None]}),
        WIDE,
        "/v1/grants",
        {
            "agent": "coder",
            "tool": "shell.exec",
            "arguments": {"a": [1.5, None]},
            "scope": "",
            "terms": TERMS,
            "signed": None,
        },
    ),
    Call(REVOKE_GRANT, OneGrant(grant_id="grt_1"), WIDE, "/v1/grants/grt_1"),
    Call(
        LIST_CAPABILITIES,
        Nothing(),
        CapabilityList(capabilities=[], problems=[], capabilitySnapshotVersion="v"),
        "/v1/capabilities",
    ),
    Call(
        INSPECT_CAPABILITY,
        InspectCapability(capability_id="say", level=2, budget=16),
        CapabilityDetail(id="say", level=2, text="t", tokens=1, left_out=0, capabilitySnapshotVersion="v"),
        "/v1/capabilities/say?level=2&budget=16",
    ),
    Call(
        VERIFY_CAPABILITY,
        VerifyCapability(capability_id="say"),
        CapabilityChecks(id="say", ok=True, checks=[]),
        "/v1/capabilities/say/verify",
        {},
    ),
    Call(
        RUN_CAPABILITY,
        RunCapability(capability_id="say", args=["-x", "ü"], stdin="in"),
        CapabilityRun(id="say", exit_code=None, reason="r", stdout="o", stderr="e"),
        "/v1/capabilities/say/run",
        {"args": ["-x", "ü"], "stdin": "in"},
    ),
    Call(LIST_GATEWAYS, Nothing(), GatewayList(gateways=[GATEWAY], problems=[]), "/v1/gateways"),
    Call(
        GET_GATEWAY,
        OneGateway(gateway_id="echo"),
        GatewayDetail(**GATEWAY.model_dump(), url="u", token="t"),
        "/v1/gateways/echo",
    ),
    Call(START_GATEWAY, OneGateway(gateway_id="echo"), GATEWAY, "/v1/gateways/echo/start", {}),
    Call(STOP_GATEWAY, OneGateway(gateway_id="echo"), GATEWAY, "/v1/gateways/echo/stop", {}),
    Call(
        SEND_TO_GATEWAY,
        SendToGateway(gateway_id="echo", message={"a": [1, None]}),
        GatewaySent(id="echo", output=[2]),
        "/v1/gateways/echo/send",
        {"message": {"a": [1, None]}, "mode": None},
    ),
    Call(
        REPLAY,
        ReplayRequest(session_id="ses_1", current=True),
        ReplayView(session="ses_1", rules="current", events=0, equal=True, steps=[]),
        "/v1/sessions/ses_1/replay?current=true",
    ),
]
STATUSES: dict[AnyOperation, int] = {
    CREATE_PAIR_LINK: 201,
    ADD_PEER: 201,
    CREATE_TOKEN: 201,
    ADD_LEND_ROOT: 201,
    ISSUE_GRANT: 201,
    STOP: 202,
}
"""Of those whose answer has another one than 200."""
NOT_FOR_PATHS = ["", "..", "../x", "a/b", "a?b", "a b", "-x", "a\n", "\u00fc", "x" * 65, "\udcff"]
IN_PATHS: list[Callable[[str], tuple[Operation[Any, Any], Request]]] = [
    lambda text: (REMOVE_PEER, OnePeer(name=text)),
    lambda text: (RENAME_PEER, RenamePeer(name=text, new_name="robert")),
    lambda text: (REVOKE_TOKEN, OneToken(name=text)),
    lambda text: (GET_APPROVAL, OneApproval(approval_id=text)),
    lambda text: (DENY_APPROVAL, DenyApproval(approval_id=text)),
    lambda text: (REVOKE_GRANT, OneGrant(grant_id=text)),
    lambda text: (VERIFY_CAPABILITY, VerifyCapability(capability_id=text)),
    lambda text: (GET_GATEWAY, OneGateway(gateway_id=text)),
    lambda text: (REPLAY, ReplayRequest(session_id=text)),
]


@asynccontextmanager
async def serving(double: DaemonDouble, base: Path) -> AsyncIterator[tuple[ControlClient, Home]]:
    home = resolve_home({"SUBLET_HOME": str(base)})
    home.make()
    server = ControlServer(home, double.table, identify=lambda _: None)
    await server.start()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(server.serve())
        await asyncio.sleep(0)
        try:
            yield ControlClient(home), home
        finally:
            task.cancel()


async def test_every_operation_arrives_and_comes_back_as_it_was(tmp_path: Path) -> None:
    double = DaemonDouble()
    async with serving(double, tmp_path) as (client, _):
        for one in CALLS:
            double.answers[one.operation.name] = one.answer
            double.asked.clear()
            assert await client.call(one.operation, one.request) == one.answer
            assert double.asked == [(one.operation.name, (one.request, OWNER), {})]


async def test_what_an_older_client_sends_is_the_same_request_and_answered_in_the_same_form(tmp_path: Path) -> None:
    double = DaemonDouble()
    async with serving(double, tmp_path) as (_, home):
        transport = httpx.AsyncHTTPTransport(uds=home.control_socket)
        async with httpx.AsyncClient(transport=transport, base_url="http://sublet", trust_env=False) as http:
            for one in CALLS:
                double.answers[one.operation.name] = one.answer
                double.asked.clear()
                came = await http.request(one.method, one.target, json=one.body)
                assert double.asked == [(one.operation.name, (one.request, OWNER), {})], came.text
                assert came.status_code == STATUSES.get(one.operation, 200)
                assert came.json() == TypeAdapter(type(one.answer)).dump_python(one.answer, mode="json")


@pytest.mark.parametrize("text", NOT_FOR_PATHS)
async def test_no_name_becomes_another_path(tmp_path: Path, text: str) -> None:
    double = DaemonDouble()
    async with serving(double, tmp_path) as (client, _):
        for made in IN_PATHS:
            with pytest.raises(SubletError) as refused:
                await client.call(*made(text))
            assert refused.value.code is LocalCode.INVALID_ARGUMENT
    assert double.asked == []


async def test_a_directory_whose_name_is_not_utf_8_is_refused_with_words(tmp_path: Path) -> None:
    """In the query as in the body, when the request is made as when it is sent."""
    double = DaemonDouble()
    async with serving(double, tmp_path) as (client, _):
        for operation in (ADD_LEND_ROOT, REMOVE_LEND_ROOT):
            with pytest.raises(SubletError, match="not UTF-8") as refused:
                await client.call(operation, LendRoot.model_construct(path="/srv/\udcff"))
            assert refused.value.code is LocalCode.INVALID_ARGUMENT
            with pytest.raises(ValidationError) as invalid:
                await client.call(operation, LendRoot(path="/srv/\udcff"))
            told = sole_error(invalid.value)
            assert told is not None
            assert told.code is LocalCode.INVALID_ARGUMENT
    assert double.asked == []


def services(log: list[str], policy: object) -> list[object]:
    """Return the services of this area over parts that write down what is done with them."""
    journal, roots = Effect(log, "journal"), LendRoots(log, "lend_roots")
    gate = Gatekeeper(cast("Any", policy), cast("Any", journal), roots.paths, KeptDecisions())
    parts = {one.name: Effect(log, one.name) for one in fields(PeerParts)}
    parts |= {"gate": gate, "lend_roots": roots, "node_id": "node-x"}  # type: ignore[dict-item]
    does = {name: cast("Any", Effect(log, name)) for name in ("status", "doctor", "reload", "stop")}
    return [
        PeerService(PeerParts(**cast("Any", parts))),
        TokenService(gate, cast("Any", Effect(log, "tokens"))),
        LendRootService(gate, cast("Any", roots)),
        StateService(gate, **does),
    ]


SERVED = OperationTable(*services([], Policy(Protected(Path("/home/nobody"))))).operations


def request_of(operation: AnyOperation, workspace: Path) -> Request:
    """Return something plausible."""
    if operation.request is LendRoot:
        return LendRoot(path=str(workspace))
    return next(one.request for one in CALLS if one.operation is operation)


async def refused(table: OperationTable, operation: AnyOperation, workspace: Path) -> SubletError | None:
    try:
        await table.call(cast("Any", operation), request_of(operation, workspace), OWNER)
    except SubletError as error:
        return error
    return None


@pytest.mark.parametrize("operation", SERVED, ids=lambda one: one.name)
async def test_policy_is_asked_before_anything_is_done(operation: AnyOperation, tmp_path: Path) -> None:
    """Deny the first question, then the second, and so on: whatever is denied, nothing has been done."""
    for grants in range(20):
        log: list[str] = []
        table = OperationTable(*services(log, AskedPolicy(log, grants)))
        refusal = await refused(table, operation, tmp_path)
        if refusal is not None:
            assert refusal.code is LocalCode.POLICY_DENIED
            assert effects(log) == []
            # A refusal is journalled, and nothing else.
            assert log.count("journal.events.append_event") == 1
            assert len([entry for entry in log if entry.startswith("ask ")]) == grants + 1
            continue
        assert grants > 0, f"{operation.name} asks nobody"
        assert len([entry for entry in log[: effects(log)[0]] if entry.startswith("ask ")]) == grants
        assert grants == (3 if operation is ADD_LEND_ROOT else 1)
        return
    pytest.fail(f"{operation.name} never stops asking")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", SERVED, ids=lambda one: one.name)
async def test_nobody_may_call_what_is_not_theirs(operation: AnyOperation, kind: Kind, tmp_path: Path) -> None:
    log: list[str] = []
    table = OperationTable(*services(log, Policy(Protected(Path("/home/nobody")))))
    caller = Subject(kind, "x", (str(tmp_path),))
    allowed = kind == "human" or (kind == "mcp" and operation is SHOW_DIRECTORY)
    if allowed:
        await table.call(cast("Any", operation), request_of(operation, tmp_path), caller)
    else:
        with pytest.raises(SubletError) as no:
            await table.call(cast("Any", operation), request_of(operation, tmp_path), caller)
        assert no.value.code is LocalCode.POLICY_DENIED
    assert bool(effects(log)) is allowed


async def test_a_refusal_is_journalled_with_its_rule_and_bounded(tmp_path: Path) -> None:
    told: list[dict[str, object]] = []

    class Events(Effect):
        async def append_event(
            self, kind: str, delegation_id: str | None, data: dict[str, object], **_: object
        ) -> None:
            told.append(data)

    policy = Policy(Protected(tmp_path / "home"))
    journal = cast("Any", SimpleNamespace(events=Events([], "events")))
    gate = Gatekeeper(policy, journal, list, KeptDecisions())
    service = TokenService(gate, cast("Any", Effect([], "tokens")))
    with pytest.raises(SubletError):
        await service.revoke_token(OneToken(name="x" * 100_000), Subject("mcp", "claude"))
    [data] = told
    assert data["subject"] == "mcp claude"
    assert data["action"] == "token.manage"
    assert data["rule"] == "ceiling"
    assert len(str(data["resource"])) < 1_000


async def test_a_removed_peer_loses_its_leases_and_its_work(tmp_path: Path) -> None:
    log: list[str] = []
    table = OperationTable(*services(log, Policy(Protected(tmp_path / "home"))))
    await table.call(REMOVE_PEER, OnePeer(name="bob"), OWNER)
    assert [entry for entry in log if entry.endswith(("remove", "end_peer"))] == [
        "peers.remove",
        "delegator.end_peer",
        "executor.end_peer",
    ]


def test_every_operation_of_the_area_is_tried_over_the_socket() -> None:
    modules = {inspect.getmodule(model) for model in (PeerView, TokenView, LendRoot, Check, WAITING.__class__)}
    modules |= {inspect.getmodule(model) for model in (CapabilityRun, GatewayView, ReplayView)}
    declared = {
        value.name
        for module in modules
        for value in vars(module).values()
        if hasattr(value, "path_of") and not isinstance(value, type)
    }
    assert declared == {one.operation.name for one in CALLS}
