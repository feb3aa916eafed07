"""Commands of a running daemon, typed in this process: as what they are, and without a process for each."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from sublet.cli.app import run
from sublet.cli.reaching.connection import Session
from sublet.daemon.config.paths import resolve_home
from sublet.daemon.control.client import ControlClient
from support.daemons import Daemon


@dataclass(frozen=True)
class Typing:
    """Types commands for the person of a daemon."""

    daemon: Daemon

    def run(self, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """Run a command and return what it printed on stdout."""
        home = resolve_home({"SUBLET_HOME": str(self.daemon.home)})
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err), patch("sys.stdin", io.StringIO(stdin)):
            status = run(arguments, session=Session(connect=lambda: ControlClient(home)))
        assert (status != 0) is fails, (arguments, status, out.getvalue(), err.getvalue())
        return out.getvalue()

    def json(self, *arguments: str, stdin: str = "") -> Any:
        """Run a command with ``--json`` and return the one value that it printed."""
        return json.loads(self.run(*arguments, "--json", stdin=stdin))

    def refused(self, *arguments: str) -> str:
        """Run a command that fails, and return the code of its error."""
        answer = json.loads(self.run(*arguments, "--json", fails=True))
        return str(answer["error"]["code"])
