"""Failures at what hosts and programs are connected to: the MCP face, its relay and its installer."""

from __future__ import annotations

from collections.abc import Sequence

from attacks.kit.as_probe import throwing
from attacks.probe import FailureProbe, Probe
from mcp_server import test_asking, test_host, test_resources, test_room_tools

PROBES: Sequence[Probe] = (
    FailureProbe(
        name="mcp: a host that goes away while a person is asked",
        covers=("mcp_server.asking:HostQuestions._ask", "mcp_server.era:serve", "mcp_server.connection:_lines"),
        throw=throwing(test_asking.test_a_host_that_is_gone_leaves_no_question),
    ),
    FailureProbe(
        name="mcp: a session that fails, and a call that is cancelled",
        covers=("mcp_server.host:McpFace.serve", "mcp_server.connection:serve_connection"),
        throw=throwing(
            test_host.test_a_session_that_fails_does_not_end_the_others,
            test_host.test_too_many_calls_at_once_are_told_so,
        ),
    ),
    FailureProbe(
        name="mcp: news that can't be had for once",
        covers=("mcp_server.host:McpFace._pump", "mcp_server.session:HostSession.send_updates"),
        throw=throwing(test_resources.test_the_pump_survives_a_failing_daemon),
    ),
    FailureProbe(
        name="mcp: rooms that can't be had while somebody waits",
        covers=(
            "mcp_server.room_tools:_wait",
            "mcp_server.room_tools:_hear_delegations",
            "mcp_server.room_resources:RoomUpdates.serve",
        ),
        throw=throwing(
            test_room_tools.test_delegations_are_watched_where_there_are_no_rooms,
            test_room_tools.test_2026_subscribers_hear_of_their_room,
        ),
    ),
)
