"""Logs of tests, and of processes that a test starts, as the daemon writes them: tracebacks are plain text.

Where nothing else is said, structlog draws a traceback by rich, with the values of all names in colours: that takes a
tenth of a second and more of processor time for each, and hundreds of tests throw what a service has to survive.
"""

from __future__ import annotations

import structlog


def log_plainly() -> None:
    """Print log entries as structlog does by default, but plainly."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ]
    )
