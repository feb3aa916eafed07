"""The process of a daemon in the background: ``up`` without whatever draws on terminals, which takes 7 MiB."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from sublet.cli.reaching.start_report import REPORT


def main(arguments: Sequence[str]) -> int:
    """Run the daemon until it is stopped, and return the exit status.

    Args:
        arguments: of ``up``, the one with ``REPORT`` among them.
    """
    from sublet.cli.errors import Exit, exit_for, sole_error
    from sublet.cli.reaching.serving import UpOptions, serve
    from sublet.cli.reaching.start_report import Reporter

    given = vars(_parser().parse_args(arguments))
    reporter = Reporter(given.pop("report_fd"))
    try:
        asyncio.run(serve(UpOptions(**given), reporter, reporter.ready))
    except Exception as error:
        told = sole_error(error)
        if told is None:
            raise
        sys.stderr.write(f"{told}\n")
        return exit_for(str(told.code))
    return Exit.OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sublet up", allow_abbrev=False)
    parser.add_argument(REPORT, type=int, required=True)
    for name in ("agent", "a2a", "sftp", "web", "zenoh", "public-url", "log-level", "relay", "relay-ca"):
        parser.add_argument(f"--{name}")
    for flag in ("--lan", "--unsandboxed"):
        parser.add_argument(flag, action="store_true")
    return parser
