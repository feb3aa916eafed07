"""A daemon loads nothing that prints in colour."""

from __future__ import annotations

import subprocess
import sys


def test_what_a_daemon_loads_leaves_out_what_prints_in_colour_and_the_commands_still_find_it() -> None:
    code = (
        "import sys\n"
        "from sublet.cli.reaching.lean import COLOURS, load_lean\n"
        "load_lean()\n"
        "import sublet.app.running\n"
        "print([name for name in sys.modules if name.partition('.')[0] in COLOURS])\n"
        "import httpx, structlog, rich.console\n"
        "print(httpx.__name__, structlog.__name__, rich.console.Console.__name__)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told.splitlines() == ["[]", "httpx structlog Console"]
