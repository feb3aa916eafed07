"""Failures of agents, of models and of the programs that serve them, each of which ends its own work alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from attacks.kit.as_probe import throwing
from attacks.probe import FailureProbe, Probe
from supervisor.acp import test_own_tools, test_provider, test_requests
from supervisor.chat import test_capabilities, test_mcp_tools
from supervisor.chat import test_provider as test_model

MISBEHAVIOUR = (
    ("exit", "crashed", "it ended in the middle of the conversation (exit status 7)"),
    ("storm", "crashed", "it made more than 64 requests at once"),
    ("garbage", "crashed", "what it prints is not the Agent Client Protocol"),
)

PROBES: Sequence[Probe] = (
    FailureProbe(
        name="agents: by ACP, that crash, flood, talk nonsense or hang",
        covers=(
            "supervisor.acp.asking:ToolQuestions.__init__",
            "supervisor.acp.stream:AgentStream.receive",
            "supervisor.output:drain",
        ),
        throw=throwing(
            *(
                partial(test_provider.test_misbehaviour_ends_the_work_and_is_told, mode=mode, reason=why, detail=told)
                for mode, why, told in MISBEHAVIOUR
            ),
            test_provider.test_the_lease_ends_an_agent_that_hangs,
            test_provider.test_a_flood_meets_the_bound_of_output,
        ),
    ),
    FailureProbe(
        name="agents: terminals that flood, and that are left or killed",
        covers=(
            "supervisor.acp.terminals:Terminals._attend",
            "supervisor.acp.terminals:Terminals._drain",
            "supervisor.acp.terminals:Terminals.create",
            "supervisor.acp.terminals:_Terminal.output",
        ),
        throw=throwing(
            test_requests.test_the_end_of_what_is_printed_is_kept,
            partial(test_requests.test_bounds_of_terminals, mode="terminal-kill", answer="SIGKILL"),
            test_requests.test_a_command_that_is_left_ends_with_the_conversation,
        ),
    ),
    FailureProbe(
        name="agents: nonsense and strangers at the socket of our own tools",
        covers=(
            "supervisor.tool_server.opened:OwnTools.opened",
            "supervisor.tool_server.opened:_accept",
            "supervisor.tool_server.opened:_listen",
            "supervisor.tool_server.line_server:serve_lines",
            "supervisor.tool_server.served:ServedTools._messages",
            "supervisor.tool_server.served:_lines",
        ),
        throw=throwing(
            test_own_tools.test_nonsense_is_answered_and_asks_nobody,
            test_own_tools.test_nobody_but_the_agent_is_answered,
        ),
    ),
    FailureProbe(
        name="models: an endpoint that is busy, breaks off, hangs and knows less than it says",
        covers=(
            "supervisor.chat.provider:ModelProvider._work",
            "supervisor.chat.provider:_Work.until_answered",
            "supervisor.chat.conversation:Conversation.fit",
        ),
        throw=throwing(
            test_model.test_an_endpoint_that_is_busy_is_asked_again,
            test_model.test_an_endpoint_whose_context_is_smaller_gets_less,
            test_model.test_time_that_is_over_ends_a_request_and_is_told,
            test_model.test_cancelling_ends_a_program_and_a_later_job_goes_on,
        ),
    ),
    FailureProbe(
        name="models: servers of tools that die, flood or never were there",
        covers=(
            "supervisor.chat.mcp_server:McpServer.serve",
            "supervisor.chat.mcp_server:McpServer.call",
            "supervisor.chat.mcp_server:McpServer._program",
            "supervisor.mcp_streams:session_streams",
            "supervisor.mcp_streams:session_streams.drain",
            "supervisor.mcp_streams:_lines",
            "supervisor.chat.mcp_tools:McpTools.__aenter__",
        ),
        throw=throwing(test_mcp_tools.test_tools_are_called_through_the_gate_and_a_dead_server_costs_only_its_tools),
    ),
    FailureProbe(
        name="models: capabilities in the lease",
        covers=("supervisor.capabilities.registry:CapabilitySet.get", "policy.capabilities.disclosure:disclose"),
        throw=throwing(test_capabilities.test_a_capability_is_offered_asked_for_and_run_in_the_lease),
    ),
)
