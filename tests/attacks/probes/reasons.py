"""Places that no bytes of a peer come to, and which fact keeps them away."""

from __future__ import annotations

from collections.abc import Sequence

from attacks.probe import Probe, Reason

PROBES: Sequence[Probe] = (
    Reason(
        name="guard: what watches the processes of a job",
        covers=(
            "supervisor.guard:_descendants",
            "supervisor.guard:_end_all",
            "supervisor.guard:_proportional",
            "supervisor.guard:_resident",
            "supervisor.guard:_stat",
            "supervisor.guard:_told",
            "supervisor.guard:_tree",
            "supervisor.guard:_watch",
        ),
        why="a program of its own for one job, which reads what the kernel tells; it ends with its job",
    ),
    Reason(
        name="relay: the program of an MCP host",
        covers=("mcp_server.relay:Relay.run", "mcp_server.relay:Starter.ended", "mcp_server.relay:main"),
        why="a program of its own that runs for its user's host and ends with it; it opens the null device alone",
    ),
    Reason(
        name="relay: the program of an agent's own tools",
        covers=("supervisor.tool_server.relay:_write", "supervisor.tool_server.relay:main"),
        why="a program of its own in the agent's sandbox, which keeps nothing and ends with either side",
    ),
    Reason(
        name="commands: answers of the daemon",
        covers=("daemon.control.client_http:_read", "daemon.control.client_http:is_stopped"),
        why="a command reads what its own daemon answers, and what the kernel tells of that process",
    ),
    Reason(
        name="install: the configuration of MCP hosts",
        covers=("mcp_server.install:_read", "mcp_server.install:_replace"),
        why="runs for its user at the command line alone, on files that the user owns",
    ),
    Reason(
        name="locked names: the table",
        covers=("workspace.view.locked_names:_read",),
        why="reads a file of the package itself, whose name is a constant",
    ),
    Reason(
        name="caches of what is our own",
        covers=(
            "daemon.approvals.moments:_boot",
            "messaging.declaring.operations:_names",
            "protocol.federation.events:_adapter",
            "daemon.health.stalls:Stalls.__init__",
        ),
        why="their keys are constants or functions of ours, or a few samples that we take ourselves",
    ),
    Reason(
        name="files that the daemon writes for itself",
        covers=(
            "daemon.health.heap:resident_bytes",
            "daemon.process.lock:read_owner",
            "daemon.supervising.older_sessions:_mark",
            "supervisor.processes:_is_guard",
        ),
        why="lie in a directory that only our user enters, or in the kernel's table of processes",
    ),
)
