"""No task is started in a way in which its failure would end a service, or the daemon, without anybody's wish.

``sublet.tasks`` starts services and the tasks of one caller. What is left are the parts of one operation, in a group
that this operation opens and waits for, and threads: each place is listed here with why its failure stays with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import sublet

SOURCE = Path(sublet.__file__).parent
STARTERS = {"start_soon", "create_task", "ensure_future", "Thread", "run_coroutine_threadsafe"}
NAMED = re.compile(rf"\b(?:{'|'.join(sorted(STARTERS))}|start)\b")

OPERATIONS = {
    # A relay's process has one thing to do, and ends where a part of it fails.
    "app.relay:run_relay",
    # So has that of a Computer; a connection of it is made again, and a server that ends is started again.
    "office_client.link:Link.serve",
    "office_client.servers:ToolServer._once",
    "office_client.serving:Serving._once",
    "office_client.serving:Serving.run",
    # Parts of a request, whose failure is the request's.
    "a2a_server.delegated:DelegatedWork._relay",
    "a2a_server.plain:PlainAnswers._stream",
    "a2a_server.plain:PlainAnswers.answer",
    "a2a_server.stopping:_first",
    "daemon.net.waits:Waits.unless_stopping",
    "daemon.peering.peer_directory:PeerDirectory.views",
    "mcp_server.asking:HostQuestions._ask",
    "messaging.syncing.asking:_Question.answered",
    "federation.broadcasts:Broadcasts.say",
    "mcp_server.room_tools:_wait",
    "mcp_server.begun:Begun.made_by",
    "supervisor.super_agent:SuperAgent._at_once",
    # Parts of the one service that serves offices: without one of them the others serve nobody.
    "office_server.face:OfficeFace.serve",
    "office_server.socketio_server:SocketIoServer.serve",
    # Parts of the one service of HTTP between nodes, each of which looks after itself.
    "app.node_http:NodeHttp.serve",
    "node_http.calling:NodeCaller._learn_all",
    # Parts of a connection, which ``start_alone`` has started.
    "daemon.modules.gateway_server:GatewayServer._next",
    "daemon.modules.gateway_server:GatewayServer._websocket",
    "mcp_server.era:_answer_probe",
    "mcp_server.era:serve",
    "supervisor.tool_server.line_server:serve_lines",
    # Parts of a delegation or of the work on one, which ``OwnTasks`` has started.
    "daemon.lending.delegation_run:DelegationRun._end",
    "daemon.lending.going_along:GoingAlong.until_done",
    "daemon.lending.holding:hold",
    "daemon.panels.runs:PanelRuns._drive",
    "daemon.rooms.work_talk:WorkTalk.ask",
    "daemon.working.assignment_run:AssignmentRun._while_mounted",
    "supervisor.acp.terminals:Terminals._attend",
    "supervisor.acp.terminals:Terminals.create",
    "supervisor.mcp_streams:session_streams",
    "supervisor.chat.mcp_server:McpServer.serve",
    "supervisor.chat.mcp_tools:McpTools.__aenter__",
    "supervisor.confined_runs:ConfinedRuns.run",
    "supervisor.gateways.stdio:StdioGateway._once",
    "supervisor.output:flushed_regularly",
    "supervisor.program_run:ProgramRunner._run",
    "supervisor.tool_server.opened:OwnTools.opened",
    "supervisor.tool_server.opened:_accept",
    # Steps of a stop, bounded in time.
    "daemon.lending.delegator:Delegator._stop_all",
    "daemon.working.executor:Executor._stop_each",
    # Parts of a service, whose failure is the service's: it is started again.
    "a2a_server.face:A2AFace.serve",
    "daemon.net.http_server:QuietServer.serve_until_cancelled",
    "daemon.peering.whereabouts:Whereabouts._tell_all",
    "daemon.reloading.watching:Watcher.serve",
    "federation.presence:Presence.leave",
    "daemon.rooms.lent_rooms:LentRooms.serve",
    "daemon.rooms.peer_buses:PeerBuses.addresses",
    "daemon.rooms.running_rooms:RunningRooms.until_damaged",
    "daemon.process.kept_face:KeptFace._serve",
    "mcp_server.host:McpFace._loaded",
    "messaging.delivery.acknowledging:Acknowledging.run",
    "messaging.mending.healing:Healing.watch",
    "messaging.service:MessagingService.running",
    "messaging.syncing.reconciler:Reconciler._follow",
    "messaging.syncing.reconciler:Reconciler._room",
    # Coroutines that ``alone`` holds, as somebody has to cancel the task.
    "daemon.net.acceptor:Acceptor._begin",
    "workspace.serving.listener:DataPlane._begin",
    "workspace.serving.listener:DataPlane._begin_with",
    # Threads: what is raised in one reaches nobody, so each tells those who wait.
    "daemon.audit_log.writer:Writer.__init__",
    "daemon.tasks.background:in_background",
    "daemon.health.stalls:Stalls.serve",
    "daemon.process.stop_limit:StopLimit._wait",
    "daemon.process.stop_limit:StopLimit.begin",
    "daemon.storage.store:Store.__init__",
    "messaging.backends.zenoh_network:ZenohNetwork.use_relay",
    "messaging.links.links:Links.__init__",
    "messaging.relay.forwarder:Forwarder.__init__",
    "messaging.running.owner:Owner.__init__",
    "messaging.running.sender:Sender.__init__",
}
MECHANISM = {"tasks:Services.start", "tasks:start_alone"}
COMMANDS = "cli."
"""A command is a process of its own."""


def _places(tree: ast.AST, names: tuple[str, ...] = ()) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _places(node, (*names, node.name))
            continue
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            waits = name == "start" and ast.unparse(called).endswith("group.start")
            if waits or name in STARTERS:
                yield ".".join(names)
        yield from _places(node, names)


def test_every_task_is_started_where_its_failure_has_an_owner() -> None:
    found = {
        f"{'.'.join(file.relative_to(SOURCE).with_suffix('').parts)}:{place}"
        for file in SOURCE.rglob("*.py")
        if NAMED.search(text := file.read_text(encoding="utf-8"))  # to parse all of them takes seconds
        for place in _places(ast.parse(text))
    }
    served = {place for place in found if not place.startswith(COMMANDS)}
    assert served - OPERATIONS - MECHANISM == set(), "start it by sublet.tasks, or list why its failure stays there"
    assert OPERATIONS - served == set(), "listed and gone"
