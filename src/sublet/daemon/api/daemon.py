"""Operations on the daemon: its state, its checks, its files anew, its end."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sublet.daemon.api.base import View
from sublet.daemon.api.operation import Asks, Nothing, Operation
from sublet.policy.decision import Action


class ReloadReport(View):
    """What ``reload`` has put in force."""

    agents: list[str] = Field(description="Those that are offered now")
    policy_file: str
    agent_file: str


class Check(View):
    """One line of ``doctor``."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    required_for: str = ""


class ServiceView(View):
    """One service of the daemon: it is started again, after a pause that grows, where it fails."""

    name: str
    state: Literal["running", "pausing", "stopped"]
    restarts: int = Field(default=0, description="How often it was started again since the daemon runs")
    last_error: str = Field(default="", description="How it failed last")
    failed_at: str | None = Field(default=None, description="When that was")


class StallView(View):
    """A time in which the daemon could serve nobody else."""

    at: str = Field(description="When it began")
    milliseconds: int
    cpu_milliseconds: int = Field(description="Of these, at work; the rest it waited for the disk or a processor")
    ran: str = Field(default="", description="The function that ran, as module:function; empty where it was not seen")


class StatusView(View):
    """The daemon at a glance."""

    pid: int
    version: str
    home: str
    node_id: str
    fingerprint: str
    a2a_url: str
    sftp: str
    web: str | None = Field(default=None, description="The web page; None where it is switched off")
    control_socket: str
    started_at: str
    uptime_seconds: int
    peers: int
    delegations: dict[str, int] = Field(description="Delegations by state")
    assignments_active: int = 0
    slots: int = 0
    tasks: int = Field(default=0, description="Tasks on the daemon's event loop; it must not grow with finished work")
    agents: list[str] = Field(default=[])
    sandbox: str = ""
    bus: str | None = Field(default=None, description="Where paired daemons join the message bus")
    ezagent_level: int | None = Field(default=None, description="Compliance level of messaging in rooms; None below 0")
    limits: str = Field(default="", description="By what agents are held to their limits")
    mount_guard: str = Field(default="", description="What keeps programs out of the directory of a lost mount")
    config_dir: str = ""
    state_dir: str = ""
    remarks: list[str] = Field(default=[], description="What its owner should know")
    enforced: list[str] = Field(default=[], description="What is enforced for the first agent, as ACCEPT tells it")
    services: list[ServiceView] = Field(default=[], description="The services of the daemon, by name")
    stalls: list[StallView] = Field(default=[], description="The newest times it served nobody else for 250 ms or more")
    stall_count: int = Field(default=0, description="How many there were since it runs")


class Stopping(View):
    """The daemon was told to stop, and does so once this is answered."""


SHOW_STATUS = Operation(
    "daemon.status",
    "GET",
    "/v1/status",
    Nothing,
    StatusView,
    asks=Asks(Action.DAEMON_CONTROL, "status"),
    summary="Return the daemon at a glance.",
)
RUN_DOCTOR = Operation(
    "daemon.doctor",
    "GET",
    "/v1/doctor",
    Nothing,
    list[Check],
    asks=Asks(Action.DAEMON_CONTROL, "doctor"),
    summary="Check what this machine has and lacks.",
)
RELOAD = Operation(
    "daemon.reload",
    "POST",
    "/v1/reload",
    Nothing,
    ReloadReport,
    asks=Asks(Action.DAEMON_CONTROL, "reload"),
    summary="Read agents and policy anew. A file that is bad changes nothing.",
)
STOP = Operation(
    "daemon.stop",
    "POST",
    "/v1/shutdown",
    Nothing,
    Stopping,
    asks=Asks(Action.DAEMON_CONTROL, "stop"),
    summary="Ask the daemon to stop.",
    status=202,
)
