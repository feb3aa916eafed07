"""Every way in, enumerated: whoever adds one that asks policy nothing finds it named here (case C44, DESIGN 7).

Faces reach nothing but the interfaces below, what implements these asks before it acts, and what is new belongs in one
of the tables or fails.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from starlette.routing import Route
from typer.main import get_command

import sublet.daemon
from sublet.a2a_server import routes as a2a_routes
from sublet.a2a_server.context import A2AContext
from sublet.app.areas import Areas
from sublet.app.operations import operation_table
from sublet.cli.app import app
from sublet.daemon.api.conversations import ReadConversation, Say
from sublet.daemon.api.room_messages import ReadMessages, SendMessage
from sublet.daemon.api.room_news import FollowNews, SetWatch, UnsetWatch, WatchRooms
from sublet.daemon.api.rooms import CreateRoom
from sublet.daemon.api.web_logins import WebLoginCheck
from sublet.daemon.control.routes import ControlApi
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.answers import OWNER
from sublet.daemon.operations.asking import MARK, asked_operation, asked_stream
from sublet.daemon.operations.document import declarations
from sublet.daemon.operations.table import served_by
from sublet.daemon.ports.given_to_a2a import ExecutorApi, MessageApi, PairingApi, WhereaboutsApi
from sublet.daemon.rooms.conversation_service import ConversationService
from sublet.daemon.rooms.entities import entity_of
from sublet.daemon.rooms.finding import RoomFinder
from sublet.daemon.rooms.mark_service import RoomMarkService
from sublet.daemon.rooms.member_service import RoomMemberService
from sublet.daemon.rooms.message_service import MessageService
from sublet.daemon.rooms.news_service import NewsService
from sublet.daemon.rooms.people_service import RoomPeopleService
from sublet.daemon.rooms.presence_service import RoomPresenceService
from sublet.daemon.rooms.room_service import RoomService
from sublet.daemon.rooms.speaking import Speaking
from sublet.daemon.rooms.text_service import RoomTextService
from sublet.mcp_server.context import McpContext
from sublet.policy.decision import Action, Kind, Subject
from sublet.policy.defaults import CEILING, DEFAULT_RULES
from sublet.protocol.errors import LocalCode, SubletError
from sublet.web.context import WebContext
from sublet.web.room_routes import OF_ROOMS
from sublet.web.routes import OF_THE_PAGE, PageApi
from support.daemon_double import DaemonDouble
from support.decisions import KeptDecisions, gatekeeper

SOURCE = Path(sublet.daemon.__file__).parents[1]

SERVED_BY_PEERS = {
    "invite": "asks: Acceptance.check",
    "run": "asks: Acceptance.admit",
    "renew": "asks: Acceptance.admit",
    "cancel": "ends only what this peer has begun",
    "wind_down": "ends only what this peer has begun",
    "check_invite": "looks whether this peer has used the id before",
    "check_owner": "looks whether it is this peer's",
}
"""AWCP: INVITE, START, START again, CancelTask, ERROR, and what precedes each. Ending never needs a permission."""
OPEN_TO_STRANGERS = {"complete": "a pairing link that a person has asked policy for, proven by its secret"}
TOLD_BY_PEERS = {"moved": "changes only where this very peer is called, and only to a host of its own"}
UNGUARDED_SERVICES = {"PairingService": OPEN_TO_STRANGERS}
FACE_MAY_IMPORT = re.compile(r"sublet\.daemon\.(api\.\w+|operations\.calling|ports\.\w+|config\.paths|net\.\w+)$")
PAGE_MAY_IMPORT = re.compile(r"sublet\.daemon\.operations\.(answers|reading|routes|table)$")
"""How HTTP is read and answered, which the web page has in common with the control socket."""
CLI_MAY_IMPORT = {
    "sublet.app.computer": "runs a Computer of an office in this process",
    "sublet.app.relay": "runs a relay in this process, and works on the files of one that is this person's own",
    "sublet.app.running": "starts the daemon in this process",
    "sublet.app.stores": "looks at this machine where no daemon runs",
    "sublet.daemon.approvals.approver": "the words of an error",
    "sublet.daemon.approvals.human_key": "the person's own key file, unlocked by a passphrase here and nowhere else",
    "sublet.daemon.approvals.service": "the words that a person signs",
    "sublet.daemon.config.daemon_config": "says where its files are",
    "sublet.daemon.config.config_view": "shows the person's own files where no daemon runs",
    "sublet.daemon.control.client": "speaks with the daemon",
    "sublet.daemon.health.heap_bounds": "sets what the daemon's heaps keep, before it has threads",
    "sublet.daemon.health.diagnosis": "looks at this machine where no daemon runs",
    "sublet.daemon.health": "mends databases and homes where no daemon runs",
    "sublet.daemon.tasks.failures": "tells failures",
    "sublet.daemon.governing.explain": "reads the person's own policy where no daemon runs",
    "sublet.daemon.lending.end_hook": "the words of a notice",
    "sublet.daemon.process.stop_limit": "starts the daemon in this process",
    "sublet.daemon.process.lock": "tells whether a daemon runs",
    "sublet.daemon.logs.log_file": "how large the log grows that it opens for the daemon",
    "sublet.daemon.logs.logging": "starts the daemon in this process",
    "sublet.daemon.peering.peers": "the words of an error",
}


def modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(sublet.daemon.__path__, "sublet.daemon."):
        yield importlib.import_module(found.name)


def classes(test: Callable[[type], bool]) -> list[type]:
    found = {
        cls
        for module in modules()
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if cls.__module__ == module.__name__ and not getattr(cls, "_is_protocol", False) and test(cls)
    }
    return sorted(found, key=lambda cls: cls.__qualname__)


def public_methods(cls: type) -> dict[str, Callable[..., Any]]:
    return {
        name: method
        for name, method in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and name != "serve"
    }


SERVICES = classes(lambda cls: cls.__name__.endswith("Service"))
OPERATIONS = {name for cls in SERVICES for name, method in public_methods(cls).items() if hasattr(method, MARK)}


DECLARED = {name: one for _, stated in declarations() for name, one in stated.items()}
"""Operations by the names of their constants."""


def test_what_is_enumerated_is_there() -> None:
    """An empty list would let everything pass."""
    assert {"DelegationService", "SupervisorService", "PolicyService", "ReplayService", "RoomService"} <= {
        cls.__name__ for cls in SERVICES
    }
    assert len(OPERATIONS) > 40
    assert len(DECLARED) > 20


def test_every_declared_operation_is_served_by_one_service_once() -> None:
    served = [one.name for service in SERVICES for one in served_by(service).values()]
    assert sorted(served) == sorted(one.name for one in DECLARED.values())
    routes = [(one.method, re.sub(r"{[^}]*}", "{}", one.path)) for one in DECLARED.values()]
    assert len(set(routes)) == len(routes)


def test_the_daemon_serves_every_service() -> None:
    """What the table is made of has the services of its operations, by the types of the parts."""
    made = inspect.getsource(operation_table)
    serving = {service.__name__ for service in SERVICES if served_by(service)}
    named = set(re.findall(r"(\w+Service)\(", made))
    parts = re.findall(r"areas((?:\.\w+)+),\n", made)
    found = [_type_at(Areas, path.strip(".").split(".")) for path in parts]
    assert named | {one.__name__ for each in found for one in get_args(each) or (each,)} == serving


def _type_at(owner: Any, path: list[str]) -> Any:
    for name in path:
        owner = get_type_hints(owner).get(name) or type_of_attribute(owner, name)
    return owner


def type_of_attribute(owner: type, name: str) -> type:
    """Return the class of an attribute that ``__init__`` makes."""
    made = re.search(rf"self\.{name} = (\w+)\(", inspect.getsource(owner))
    assert made is not None, f"{owner.__name__}.{name}"
    found = getattr(inspect.getmodule(owner), made[1])
    assert isinstance(found, type)
    return found


@pytest.mark.parametrize("service", SERVICES, ids=lambda cls: cls.__name__)
def test_every_method_of_a_service_is_an_operation_that_has_to_ask(service: type) -> None:
    excepted = UNGUARDED_SERVICES.get(service.__name__)
    for name, method in public_methods(service).items():
        if excepted is not None:
            called = {*excepted, "create_link", "links", "add", "rename"}
            assert name in called, f"{name}: only what an operation calls, or a proof opens"
        else:
            assert hasattr(method, MARK), f"{service.__name__}.{name} is no operation: mark it with @serves"


def test_the_control_api_serves_what_is_declared_and_nothing_else() -> None:
    routes = [route for route in ControlApi(DaemonDouble().table).app().routes if isinstance(route, Route)]
    served = [(method, route.path) for route in routes for method in (route.methods or set()) - {"HEAD"}]
    assert sorted(served) == sorted((one.method, one.path) for one in DECLARED.values())
    assert "OperationRoutes(self._table, who," in inspect.getsource(ControlApi.app)


def _with_helpers(area: type, name: str) -> str:
    """Return the source of a method and of the methods of its class that it calls."""
    seen: dict[str, str] = {}
    todo = [name]
    while todo:
        current = todo.pop()
        method = getattr(area, current, None)
        if current not in seen and inspect.isfunction(method):
            seen[current] = inspect.getsource(method)
            todo += re.findall(r"self\.(_\w+)", seen[current])
    return "".join(seen.values())


def test_whoever_speaks_on_the_control_socket_is_a_person_unless_told_otherwise() -> None:
    assert Subject("human") == OWNER


def imports(package: str) -> Iterator[tuple[str, str]]:
    for path in sorted((SOURCE / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sublet."):
                yield path.name, node.module
            elif isinstance(node, ast.Import):
                yield from ((path.name, alias.name) for alias in node.names if alias.name.startswith("sublet."))


AGENTS_ARE = ("agent_config", "line_server", "model", "presets", "prompt_kind", "provider_config", "readiness")
"""What faces may know of agents: what they are, and what they lack here."""


@pytest.mark.parametrize("face", ["mcp_server", "a2a_server", "a2a_client", "a2a_wire", "web"])
def test_a_face_reaches_the_daemon_by_its_interfaces_only(face: str) -> None:
    for file, module in imports(face):
        layer = module.split(".")[1]
        if layer == "daemon":
            shared = face == "web" and PAGE_MAY_IMPORT.match(module)
            assert FACE_MAY_IMPORT.match(module) or shared, f"{file} imports {module}, which acts without asking"
        assert layer not in ("workspace", "messaging", "federation"), f"{file} imports {module}"
        if layer == "supervisor":
            assert module.rpartition(".")[2] in AGENTS_ARE, file


def test_the_command_line_reaches_the_daemon_by_its_client_only() -> None:
    for file, module in imports("cli"):
        if module.startswith(("sublet.daemon.", "sublet.app.")) and not FACE_MAY_IMPORT.match(module):
            assert module in CLI_MAY_IMPORT, f"{file} imports {module}"
        layer = module.split(".")[1]
        assert layer not in ("workspace", "messaging", "federation", "a2a_server", "a2a_client"), f"{file} {module}"


def test_every_command_has_a_call_of_the_client_or_is_local() -> None:
    """A command of the command line is a call of an operation, or works on the person's own files alone."""
    local = {
        *("up", "down", "doctor", "status", "mcp", "mcp install", "mcp uninstall", "policy lint", "policy test"),
        "policy explain",
        *("relay init", "relay run", "relay names", "relay revoke"),
    }
    root = get_command(app)
    for name, command in getattr(root, "commands").items():  # noqa: B009 - the type of groups is typer's secret
        for inner, one in getattr(command, "commands", {"": command}).items():
            full = f"{name} {inner}".strip()
            module = inspect.getmodule(inspect.unwrap(one.callback)) if one.callback else None
            assert module is not None, full
            source = inspect.getsource(module)
            called = set(re.findall(r"control\.(?:call|stream|follow)\(\s*(\w+)", source)) & DECLARED.keys()
            assert called or full in local, f"`sublet {full}` reaches no operation"


def test_tools_of_the_mcp_server_do_everything_by_operations() -> None:
    called: set[str] = set()
    for path in sorted((SOURCE / "mcp_server").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        named = set(re.findall(r"\b(?:calls|operations|daemon)\.call\(\s*(\w+)", source))
        if path.name == "begun.py":  # it calls what it was made for
            assert named == {"self"}
            continue
        called |= named | set(re.findall(r"\bBegun(?:\[\w+\])?\(\s*(\w+)", source))
    assert {"CREATE_PANEL", "CREATE_DELEGATION"} <= called
    assert len(called) > 20
    assert called <= DECLARED.keys()


def acting(context: type) -> set[str]:
    """Return the fields of a face's context by which it acts."""
    hints = get_type_hints(context, include_extras=False)
    return {name for name, hint in hints.items() if getattr(hint, "_is_protocol", False)}


def test_what_the_a2a_face_is_given_is_guarded() -> None:
    """AWCP and plain A2A come in by these; a field more needs a place in one of the tables."""
    assert acting(A2AContext) == {"executor", "messages", "pairing", "nonces", "whereabouts"}
    assert set(public_methods(ExecutorApi)) == set(SERVED_BY_PEERS)
    assert set(public_methods(MessageApi)) == {"answer"}
    assert set(public_methods(PairingApi)) == set(OPEN_TO_STRANGERS)
    assert set(public_methods(WhereaboutsApi)) == set(TOLD_BY_PEERS)


def test_the_mcp_face_acts_by_operations_and_by_what_stands_before_them() -> None:
    assert acting(McpContext) == {"calls"}


def test_what_the_web_page_does_is_an_operation_of_its_owner_but_for_logging_in() -> None:
    assert acting(WebContext) == {"logins"}
    of_the_page = [*OF_THE_PAGE.items(), *OF_ROOMS]
    assert len(of_the_page) > 20
    assert {one for _, one in of_the_page} <= set(DECLARED.values())
    for path, one in of_the_page:
        assert path.startswith("/api/")
        assert set(re.findall(r"{(\w+)}", path)) == set(one.path_fields)
    assert "OperationRoutes(self._operations, lambda _: OWNER," in inspect.getsource(PageApi._routes)
    assert set(public_methods(WebLoginCheck)) == {"redeem"}, "opened by the secret of a link that an operation has made"
    source = inspect.getsource(PageApi)
    routes = re.findall(r'\("(?:GET|POST)", "(/api/[^"]*)", self\.(\w+)\)', source)
    assert len(routes) == inspect.getsource(PageApi.app).count('"/api/') - 1, "every row but the login is read"
    for path, endpoint in routes:
        text = _with_helpers(PageApi, endpoint)
        called = set(re.findall(r"self\._(?:operations\.call|made\.follow)\((?:request, )?(\w+)", text))
        assert called or path == "/api/logout", f"{path} does nothing by an operation"
        assert called <= DECLARED.keys(), f"{path} calls {called - DECLARED.keys()}"
        assert "OWNER" in text or "self._made." in text or path == "/api/logout", f"{path} does not tell who asks"
    assert "guarded(self._logged_in(endpoint)" in inspect.getsource(PageApi.app), (
        "none of them but for who is logged in"
    )


@pytest.mark.parametrize("kind", ["mcp", "peer", "a2a", "agent"])
def test_a_login_link_is_for_a_person_alone(kind: Kind) -> None:
    assert Action.WEB_LOGIN not in CEILING[kind]
    assert not any(kind in rule.kinds and Action.WEB_LOGIN in rule.actions for rule in DEFAULT_RULES)


ROOM_ACTIONS = {Action.ROOM_READ, Action.ROOM_SEND, Action.ROOM_MANAGE}


@pytest.mark.parametrize("kind", ["peer", "a2a", "agent"])
def test_rooms_are_open_to_people_and_mcp_hosts_of_this_machine_alone(kind: Kind) -> None:
    """A paired daemon writes by its bus, where the room's own rules say what counts, and never by an operation."""
    assert not ROOM_ACTIONS & CEILING[kind]
    assert CEILING["mcp"] >= ROOM_ACTIONS
    with pytest.raises(SubletError) as refused:
        entity_of(Subject(kind, "bob"), "node-0")
    assert refused.value.code is LocalCode.POLICY_DENIED


SPEAKS = r"_speaking\.(?:call|send|page|receipts)\("


def test_nobody_chooses_as_whom_it_speaks_in_rooms() -> None:
    """Requests hold no author, and each operation that acts on a room takes the caller's own entity."""
    assert inspect.getsource(Speaking).count("entity_of(") == 1
    for service in (
        RoomService,
        RoomMemberService,
        RoomMarkService,
        RoomPeopleService,
        RoomPresenceService,
        RoomTextService,
        MessageService,
        ConversationService,
        NewsService,
        RoomFinder,
    ):
        source = inspect.getsource(service)
        assert len(re.findall(SPEAKS, source)) == len(re.findall(SPEAKS + r"\s*caller,", source)) >= 4
        assert source.count(".call(") == source.count("_speaking.call(")
        assert source.count("service.watch(") == source.count("service.watch(me,")
        assigned = re.findall(r"\bme = (.*)", source)
        assert all(value.endswith("self._speaking.entity(caller)") for value in assigned)
    for model in (
        CreateRoom,
        SendMessage,
        ReadMessages,
        WatchRooms,
        Say,
        ReadConversation,
        FollowNews,
        SetWatch,
        UnsetWatch,
    ):
        assert not {"author", "entity", "entity_id"} & set(model.model_fields)


def test_the_routes_of_the_a2a_face_are_these() -> None:
    source = inspect.getsource(a2a_routes) + (SOURCE / "a2a_server" / "face.py").read_text(encoding="utf-8")
    assert "_executor" not in inspect.getsource(a2a_routes), "a route acts by the handler alone"
    assert source.count("PairingRoute(") == source.count("MovedRoute(") == 1


@pytest.mark.parametrize("message", [name for name, how in SERVED_BY_PEERS.items() if how.startswith("asks")])
def test_what_peers_ask_for_goes_by_policy(message: str) -> None:
    from sublet.daemon.working.acceptance import Acceptance
    from sublet.daemon.working.executor import Executor

    step = SERVED_BY_PEERS[message].rpartition(".")[2]
    assert f"self._acceptance.{step}(" in _with_helpers(Executor, message)
    assert "self._gate.ask_for(" in _with_helpers(Acceptance, step)


GATES = classes(lambda cls: {"ask", "ended"} <= set(vars(cls)))


def test_every_gate_before_tools_asks_policy() -> None:
    for gate in GATES:
        assert "decide_on_record(" in inspect.getsource(inspect.getmodule(gate) or gate), gate


def test_everything_that_decides_does_so_at_the_gatekeeper() -> None:
    """Only he writes decisions down; whoever else asks policy only looks, to say in a list what could be used."""
    looks = {
        "gatekeeper.py": "decides",
        "explain.py": "explains",
        "run_gate.py": "looks whether a grant is worth using, before it decides at the gatekeeper",
    }
    for path in sorted((SOURCE / "daemon").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if re.search(r"policy\.decide(?:,|\((?!\)))", text):
            assert path.name in looks, f"{path.name} asks policy past the gatekeeper"


class _Forgetful:
    """A service with a method that forgets to ask."""

    def __init__(self, gate: Gatekeeper) -> None:
        self._gate = gate

    @asked_operation
    async def asks(self, caller: Subject) -> str:
        await self._gate.ask(caller, Action.POLICY_READ, "*")
        return "done"

    @asked_operation
    async def acts(self, caller: Subject) -> str:
        return "done"

    @asked_stream
    async def streams(self, caller: Subject) -> Any:
        yield "done"

    @asked_operation
    async def fails(self, caller: Subject) -> str:
        await self._gate.ask(caller, Action.PEER_PAIR, "bob")
        raise ValueError("broken")


@pytest.mark.anyio
async def test_an_operation_that_forgets_to_ask_fails_and_one_that_asks_tells_what_became_of_it() -> None:
    class Journal:
        @property
        def events(self) -> Journal:
            return self

        async def append_event(self, *told: object) -> None:
            raise AssertionError

    log = KeptDecisions()
    made: Any = _Forgetful(gatekeeper(Journal(), log=log))  # type: ignore[arg-type]
    assert await made.asks(OWNER) == "done"
    with pytest.raises(RuntimeError, match="acts has asked nobody"):
        await made.acts(OWNER)
    with pytest.raises(RuntimeError, match="streams has asked nobody"):
        [piece async for piece in made.streams(OWNER)]
    with pytest.raises(ValueError, match="broken"):
        await made.fails(OWNER)
    # What only reads is no entry of the log.
    assert [kind for kind, _ in log.entries] == ["decision", "outcome"]
    assert log.durable == {1}
    assert log.entries[1][1] == {"of": 1, "outcome": "failed", "error": "ValueError"}
