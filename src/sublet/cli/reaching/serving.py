"""Running the daemon in this process, for ``sublet up`` and for the one that it starts in the background."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sublet.cli.errors import sole_error
from sublet.cli.reaching.lean import load_lean
from sublet.cli.reaching.start_report import Reporter

if TYPE_CHECKING:
    from sublet.daemon.api.daemon import StatusView


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What ``up`` was asked for, checked; ``None`` leaves it to the daemon's defaults."""

    agent: str | None
    a2a: str | None
    sftp: str | None
    web: str | None
    zenoh: str | None
    lan: bool
    public_url: str | None
    unsandboxed: bool
    log_level: str | None
    relay: str | None = None
    relay_ca: str | None = None

    def arguments(self) -> list[str]:
        """Return the options again, for the process that is started in the background."""
        named = {
            "--agent": self.agent,
            "--a2a": self.a2a,
            "--sftp": self.sftp,
            "--web": self.web,
            "--zenoh": self.zenoh,
            "--public-url": self.public_url,
            "--log-level": self.log_level,
            "--relay": self.relay,
            "--relay-ca": self.relay_ca,
        }
        values = [f"{name}={value}" for name, value in named.items() if value is not None]
        flags = (("--lan", self.lan), ("--unsandboxed", self.unsandboxed))
        return [*values, *(name for name, wanted in flags if wanted)]


async def serve(options: UpOptions, reporter: Reporter, ready: Callable[[StatusView], None]) -> None:
    """Run the daemon until it is stopped.

    Args:
        options: of ``up``.
        reporter: is told why it does not come up; the traceback of what nobody expected goes into the log.
        ready: is told when it is ready to work.
    """
    try:
        await _run(options, ready)
    except Exception as error:
        if (told := sole_error(error)) is not None:
            reporter.failed(told)
        elif reporter.waiting:
            import structlog

            structlog.get_logger(__name__).exception("the daemon broke before it was ready")
        raise


async def _run(options: UpOptions, ready: Callable[[StatusView], None]) -> None:
    load_lean()
    from sublet.daemon.health.heap_bounds import bound_heaps

    bound_heaps()
    from sublet.app.running import run_daemon
    from sublet.cli.reaching.start_report import log_path
    from sublet.daemon.config.daemon_config import DaemonConfig
    from sublet.daemon.logs.logging import configure_logging
    from sublet.daemon.process.stop_limit import StopLimit

    config = DaemonConfig(
        agent_file=options.agent,
        a2a=options.a2a,
        sftp=options.sftp,
        web=options.web,
        zenoh=options.zenoh,
        lan=options.lan,
        public_url=options.public_url,
        unsandboxed=options.unsandboxed,
        log_level=options.log_level,
        relay=options.relay,
        relay_ca=options.relay_ca,
    )
    configure_logging(config.log_level, own_file=log_path(config.home))
    await run_daemon(config, ready, StopLimit)
