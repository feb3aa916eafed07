"""Nothing is done for anybody before policy has been asked, and nobody may do what is not theirs to do."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest

from sublet.daemon.api.base import Request
from sublet.daemon.api.delegation_fields import OneDelegation, OneWithPatch
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.api.events import EventPage, FollowEvents, ReadEvents
from sublet.daemon.api.operation import AnyOperation
from sublet.daemon.api.results import ApplyResult
from sublet.daemon.control import delegation_admission
from sublet.daemon.control.delegation_admission import DelegationParts
from sublet.daemon.control.delegation_service import DelegationService
from sublet.daemon.control.event_service import HEARTBEAT_SECONDS, EventService
from sublet.daemon.control.prune_service import PruneService
from sublet.daemon.governing import gatekeeper as gatekeeper_module
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import served_by
from sublet.daemon.storage.records import ResourceRecord
from sublet.daemon.working.assignment_service import AssignmentService
from sublet.policy.decision import Kind, Subject
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.protocol.chain import Chain
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.events import Event, EventFilter, EventKind
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from support.decisions import KeptDecisions
from support.effects import AskedPolicy, Effect, LendRoots, effects

pytestmark = pytest.mark.anyio

Service = DelegationService | EventService | AssignmentService | PruneService
SERVICES: tuple[type[Service], ...] = get_args(Service)
OPERATIONS = {one.name: (service, name) for service in SERVICES for name, one in served_by(service).items()}
KINDS: tuple[Kind, ...] = get_args(Kind)
FOR_MCP = {
    "delegations.create",
    "delegations.get",
    "delegations.wait",
    "delegations.list",
    "delegations.audit",
    "delegations.cancel",
    "delegations.extend",
    "delegations.say",
    "events.read",
    "events.follow",
    "results.review",
    "results.patch",
    "results.apply",
    "results.discard",
    "results.undo",
}

NARROWED = {"events.read": 1, "events.follow": 1}
"""Questions of which a no only narrows what is shown: events of sessions."""


class Results(Effect):
    """Staged results of a directory; that it is looked up is written down."""

    def __init__(self, log: list[str], directory: Path) -> None:
        super().__init__(log, "results")
        self._directory = directory

    async def workspaces(self, delegation_id: str) -> list[str]:
        self._log.append("results.workspaces")
        return [str(self._directory)]


def parts(log: list[str], policy: object, workspace: Path = Path("/srv/project")) -> DelegationParts:
    made: dict[str, object] = {name: Effect(log, name) for name in inspect.signature(DelegationParts).parameters}
    roots = LendRoots(log, "lend_roots")
    gate = Gatekeeper(cast("Any", policy), cast("Any", Effect(log, "journal")), roots.paths, KeptDecisions())
    made |= {"policy": policy, "gate": gate, "results": Results(log, workspace)}
    return DelegationParts(**cast("Any", {**made, "chain_of": lambda _: Chain(), "max_depth": 4}))


def request_of(operation: AnyOperation, workspace: Path) -> Request:
    """Return something plausible for each field that has to be given, and hidden names to be shown."""
    known = {
        "delegation_id": "dlg_1",
        "workspace_dir": str(workspace),
        "peer": "bob",
        "prompt": "and then",
        "reveal": [".env", "keys"],
        "seconds": 60,
    }
    fields = operation.request.model_fields
    wanted = {name for name, field in fields.items() if field.is_required() or name == "reveal"}
    found: Request = operation.request.model_validate({name: known[name] for name in wanted})
    return found


def service_of(made: type[Service], parts: DelegationParts) -> Service:
    """Return a service whose effects are written into the log of ``parts``."""
    if issubclass(made, DelegationService):
        return made(parts)
    journal = cast("Any", parts.gate)._journal
    log = journal._log
    if issubclass(made, AssignmentService):
        return made(parts.gate, journal, cast("Any", Effect(log, "work")).stop)
    if issubclass(made, EventService):
        return made(parts.gate, journal.events)
    return made(parts.gate, cast("Any", Effect(log, "pruning")))


async def call(parts: DelegationParts, name: str, caller: Subject, workspace: Path) -> None:
    made, method = OPERATIONS[name]
    called = getattr(service_of(made, parts), method)(request_of(served_by(made)[method], workspace), caller)
    await (anext(called) if inspect.isasyncgen(called) else called)


async def refused(parts: DelegationParts, name: str, caller: Subject, workspace: Path) -> SubletError | None:
    try:
        await call(parts, name, caller, workspace)
    except SubletError as error:
        return error
    return None


@pytest.mark.parametrize("name", OPERATIONS)
async def test_policy_is_asked_before_anything_is_done(name: str, tmp_path: Path) -> None:
    """Deny the first question, then the second, and so on: whatever is denied, nothing has been done."""
    for grants in range(20):
        log: list[str] = []
        made = parts(log, AskedPolicy(log, grants), tmp_path)
        refusal = await refused(made, name, Subject("human"), tmp_path)
        if refusal is not None:
            assert refusal.code is LocalCode.POLICY_DENIED
            assert effects(log) == []
            # A refusal is journalled, and nothing else.
            assert log.count("journal.events.append_event") == 1
            assert len([entry for entry in log if entry.startswith("ask ")]) == grants + 1
            continue
        assert grants > 0, f"{name} asks nobody"
        asked = len([entry for entry in log[: effects(log)[0]] if entry.startswith("ask ")])
        assert asked == grants + NARROWED.get(name, 0)
        return
    pytest.fail(f"{name} never stops asking")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
async def test_nobody_may_call_what_is_not_theirs(name: str, kind: Kind, tmp_path: Path) -> None:
    log: list[str] = []
    policy = Policy(Protected(Path("/home/nobody")))
    caller = Subject(kind, "x", (str(tmp_path),))
    made = parts(log, policy, tmp_path)
    allowed = kind == "human" or (kind == "mcp" and name in FOR_MCP)
    if name == "delegations.create" and kind == "mcp":
        # Hidden names are a person's to show.
        request = CreateDelegation(workspace_dir=str(tmp_path), peer="bob", prompt="p")
        await DelegationService(made).create(request, caller)
        with pytest.raises(SubletError):
            await call(made, name, caller, tmp_path)
    elif allowed:
        await call(made, name, caller, tmp_path)
    else:
        with pytest.raises(SubletError) as no:
            await call(made, name, caller, tmp_path)
        assert no.value.code is LocalCode.POLICY_DENIED
    assert bool(effects(log)) is allowed


class Recorder(Effect):
    """A delegator that keeps what it was asked to create."""

    def __init__(self) -> None:
        super().__init__([], "delegator")
        self.workspaces: list[str] = []

    async def create(
        self, request: CreateDelegation, caller: Subject, resources: Sequence[ResourceRecord], *more: object
    ) -> None:
        self.workspaces += [resource.path for resource in resources]


def lending(recorder: Recorder, tmp_path: Path, *, git: GitSandbox | None = None) -> DelegationService:
    policy = Policy(Protected(tmp_path / "home", (tmp_path / "state",)))
    made = parts([], policy)
    fields = {name: getattr(made, name) for name in inspect.signature(DelegationParts).parameters}
    return DelegationService(
        DelegationParts(**cast("Any", {**fields, "delegator": recorder, "git": git or GitSandbox()}))
    )


async def test_what_is_lent_is_the_directory_that_policy_has_seen(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    recorder = Recorder()
    service = lending(recorder, tmp_path)
    request = CreateDelegation(workspace_dir=str(tmp_path / "link"), peer="bob", prompt="p")
    await service.create(request, Subject("mcp", "x", (str(tmp_path / "real"),)))
    assert recorder.workspaces == [str(tmp_path / "real")]
    with pytest.raises(SubletError) as no:
        await service.create(request, Subject("mcp", "x", (str(tmp_path / "elsewhere"),)))
    assert no.value.code is LocalCode.POLICY_DENIED


async def test_options_that_do_not_go_together_are_refused_before_anything_is_looked_up(tmp_path: Path) -> None:
    recorder = Recorder()
    service = lending(recorder, tmp_path)
    request = CreateDelegation(
        workspace_dir=str(tmp_path / "missing"), peer="nobody", prompt="p", watch=True, result_mode="staged"
    )
    with pytest.raises(SubletError, match="nothing to watch") as no:
        await service.create(request, Subject("mcp", "x", ()))
    assert no.value.code is LocalCode.INVALID_ARGUMENT
    assert recorder.workspaces == []


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"transport": "git"}, "the transport git"),
        ({"result_mode": "staged", "result_branch": "work"}, "a result on a branch"),
    ],
)
async def test_what_needs_git_on_a_peers_data_is_refused_where_git_can_not_be_confined(
    tmp_path: Path, asked: dict[str, object], named: str
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    recorder = Recorder()
    service = lending(recorder, tmp_path, git=GitSandbox(program=str(tmp_path / "no-bwrap")))
    request = CreateDelegation.model_validate({"workspace_dir": str(mine), "peer": "bob", "prompt": "p", **asked})
    with pytest.raises(SubletError, match=named) as no:
        await service.create(request, Subject("mcp", "x", (str(mine),)))
    assert no.value.code is ErrorCode.DEP_MISSING
    assert "--unsandboxed" in no.value.hint
    assert recorder.workspaces == []
    await lending(recorder, tmp_path, git=GitSandbox(confined=False)).create(request, Subject("mcp", "x", (str(mine),)))
    assert recorder.workspaces == [str(mine)]


async def test_policy_is_asked_for_each_directory(tmp_path: Path) -> None:
    for name in ("mine", "docs"):
        (tmp_path / name).mkdir()
    docs = {"name": "docs", "path": str(tmp_path / "docs")}
    request = CreateDelegation.model_validate(
        {"workspace_dir": str(tmp_path / "mine"), "peer": "bob", "prompt": "p", "resources": [docs]}
    )
    recorder = Recorder()
    with pytest.raises(SubletError, match="docs") as no:
        await lending(recorder, tmp_path).create(request, Subject("mcp", "x", (str(tmp_path / "mine"),)))
    assert no.value.code is LocalCode.POLICY_DENIED
    assert recorder.workspaces == []
    await lending(recorder, tmp_path).create(request, Subject("mcp", "x", (str(tmp_path),)))
    assert recorder.workspaces == [str(tmp_path / "mine"), str(tmp_path / "docs")]


@pytest.mark.parametrize(
    ("name", "path", "code"),
    [
        ("meta", "docs", LocalCode.INVALID_ARGUMENT),
        ("workspace", "docs", LocalCode.INVALID_ARGUMENT),
        ("twice", "docs", LocalCode.INVALID_ARGUMENT),
        ("same", "mine", ErrorCode.WORKSPACE_INVALID),
        ("inner", "mine/inner", ErrorCode.WORKSPACE_INVALID),
        ("outer", ".", ErrorCode.WORKSPACE_INVALID),
        ("link", "link", ErrorCode.WORKSPACE_INVALID),
        ("absent", "absent", ErrorCode.WORKSPACE_NOT_FOUND),
    ],
)
async def test_directories_lie_apart_and_have_names_of_their_own(
    name: str, path: str, code: ErrorCode | LocalCode, tmp_path: Path
) -> None:
    area = tmp_path / "area"
    for directory in ("mine/inner", "docs", "twice"):
        (area / directory).mkdir(parents=True)
    (area / "link").symlink_to("mine")
    resources = [{"name": "twice", "path": str(area / "twice")}, {"name": name, "path": str(area / path)}]
    request = CreateDelegation.model_validate(
        {"workspace_dir": str(area / "mine"), "peer": "bob", "prompt": "p", "resources": resources}
    )
    recorder = Recorder()
    with pytest.raises(SubletError) as no:
        await lending(recorder, tmp_path).create(request, Subject("human"))
    assert no.value.code is code
    assert recorder.workspaces == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("relative", ErrorCode.WORKSPACE_INVALID),
        ("/x\0y", ErrorCode.WORKSPACE_INVALID),
        ("{tmp}/absent", ErrorCode.WORKSPACE_NOT_FOUND),
        ("{tmp}/file", ErrorCode.WORKSPACE_INVALID),
        ("{tmp}/" + "x" * 300, ErrorCode.WORKSPACE_INVALID),
        ("/x" * 2_000, ErrorCode.WORKSPACE_NOT_FOUND),
        ("/x" * 4_000, ErrorCode.WORKSPACE_INVALID),
        ("{tmp}/loop", ErrorCode.WORKSPACE_INVALID),
        ("{tmp}/\x1b[31m", ErrorCode.WORKSPACE_NOT_FOUND),
        ("{tmp}/home", LocalCode.POLICY_DENIED),
        ("{tmp}/state", LocalCode.POLICY_DENIED),
    ],
)
async def test_a_directory_is_never_guessed(path: str, code: ErrorCode | LocalCode, tmp_path: Path) -> None:
    """Case C01: a path that is not there is an error, never another directory."""
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("home", "state"):
        (tmp_path / name).mkdir()
    recorder = Recorder()
    request = CreateDelegation(workspace_dir=path.format(tmp=tmp_path), peer="bob", prompt="p")
    with pytest.raises(SubletError) as no:
        await lending(recorder, tmp_path).create(request, Subject("human"))
    assert no.value.code is code
    assert "\x1b" not in no.value.message
    assert recorder.workspaces == []


async def test_an_agent_has_a_plain_name(tmp_path: Path) -> None:
    request = CreateDelegation(workspace_dir=str(tmp_path), peer="bob/../x", prompt="p")
    with pytest.raises(SubletError) as no:
        await lending(Recorder(), tmp_path).create(request, Subject("human"))
    assert no.value.code is LocalCode.INVALID_ARGUMENT


async def test_a_disk_that_does_not_answer_blocks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def hang(path: str) -> str:
        answer.wait(10)
        return path

    monkeypatch.setattr(gatekeeper_module, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(delegation_admission, "real_directory", hang)
    request = CreateDelegation(workspace_dir=str(tmp_path), peer="bob", prompt="p")
    with pytest.raises(SubletError) as no:
        await lending(Recorder(), tmp_path).create(request, Subject("human"))
    answer.set()
    assert no.value.code is LocalCode.UNAVAILABLE


async def test_an_agent_writes_by_a_result_only_where_it_may_lend(tmp_path: Path) -> None:
    log: list[str] = []
    service = DelegationService(parts(log, Policy(Protected(tmp_path / "home")), tmp_path / "project"))
    one = OneDelegation(delegation_id="dlg_1")
    for roots, allowed in (((str(tmp_path / "project"),), True), ((str(tmp_path / "other"),), False), ((), False)):
        agent = Subject("mcp", "x", roots)
        await service.review(OneWithPatch(delegation_id="dlg_1"), agent)
        log.clear()
        for call in (service.apply(ApplyResult(delegation_id="dlg_1"), agent), service.undo(one, agent)):
            if allowed:
                await call
                continue
            with pytest.raises(SubletError) as no:
                await call
            assert no.value.code is LocalCode.POLICY_DENIED
        assert [entry for entry in log if entry in ("results.apply", "results.undo")] == (
            ["results.apply", "results.undo"] if allowed else []
        )


async def test_a_repository_is_not_written_to_in_a_copy(tmp_path: Path) -> None:
    body = {"workspace_dir": str(tmp_path), "peer": "bob", "prompt": "p", "result_mode": "staged", "git": "rw"}
    with pytest.raises(SubletError) as no:
        await lending(Recorder(), tmp_path).create(CreateDelegation.model_validate(body), Subject("human"))
    assert no.value.code is LocalCode.INVALID_ARGUMENT
    assert "git=ro" in no.value.hint


@pytest.mark.parametrize("git", ["ro", "rw"])
async def test_a_repository_does_not_go_by_git(tmp_path: Path, git: str) -> None:
    body = {"workspace_dir": str(tmp_path), "peer": "bob", "prompt": "p", "transport": "git", "git": git}
    with pytest.raises(SubletError, match="a repository of its own") as no:
        await lending(Recorder(), tmp_path).create(CreateDelegation.model_validate(body), Subject("human"))
    assert no.value.code is LocalCode.INVALID_ARGUMENT


@pytest.mark.parametrize(("kind", "sees"), [("human", True), ("mcp", False)])
async def test_events_of_sessions_are_for_whoever_may_read_sessions(kind: Kind, sees: bool) -> None:
    asked: list[EventFilter] = []

    class Events(Effect):
        async def wait_for_events(self, *_: object, only: EventFilter, **__: object) -> None:
            asked.append(only)

    made = parts([], Policy(Protected(Path("/home/nobody"))))
    service = EventService(made.gate, cast("Any", Events([], "events")))
    await service.read_events(ReadEvents(), Subject(kind, "x"))
    assert [one.sessions for one in asked] == [sees]
    if not sees:
        with pytest.raises(SubletError, match=r"session\.read"):
            await service.read_events(ReadEvents(session_id="ses_1"), Subject(kind, "x"))


async def test_a_feed_goes_on_where_it_was_and_asks_policy_for_each_page() -> None:
    read: list[tuple[int, float]] = []
    event = Event(seq=8, at="t", kind=EventKind.DELEGATION_OUTPUT)

    class Events(Effect):
        async def wait_for_events(self, cursor: int, *, timeout: float, **_: object) -> EventPage:
            read.append((cursor, timeout))
            return EventPage(events=[event] if cursor == 7 else [], cursor=8)

    log: list[str] = []
    made = parts(log, AskedPolicy(log, 4))
    events = cast("Any", Events(log, "journal.events"))
    gate = Gatekeeper(made.policy, cast("Any", SimpleNamespace(events=events)), list, KeptDecisions())
    service = EventService(gate, events)
    feed = service.follow_events(FollowEvents(cursor=7), Subject("human"))
    assert [await anext(feed), await anext(feed)] == [[event], []]
    with pytest.raises(SubletError) as no:
        await anext(feed)
    assert no.value.code is LocalCode.POLICY_DENIED
    assert read == [(7, 0), (8, HEARTBEAT_SECONDS)]
    assert log.count("ask delegation.read") == 3
