"""The console script: sends ``sublet mcp`` to the relay before anything else is imported (DESIGN 3).

The daemon that ``sublet up --detach`` starts goes past the command line too, which it does not need, and so does
``--version``, which programs ask for to see whether we are there.

A host starts one relay per session and waits for it, so that path stays within milliseconds of the bare interpreter.
The relay runs in this process: by the time this line is read ``site`` has been paid for, and replacing ourselves by
``python -I -S relay.py`` would only add the start of a second interpreter (23 ms became 26 ms, at the same 10 MiB).
"""

from __future__ import annotations

import sys

from sublet.cli.standard_streams import OutputLost, drop_output, open_closed, tell_lost_output

BROKEN_PIPE = 141
"""As ``errors.Exit`` has it, which takes too long to load here."""


def main() -> int:
    """Run the command line and return its exit status."""
    open_closed()
    if sys.argv[1:] == ["mcp"]:
        from sublet.mcp_server.relay import main as relay

        return relay()
    if sys.argv[1:2] == ["up"] and any(argument.startswith("--report-fd=") for argument in sys.argv):
        from sublet.cli.reaching.background import main as background

        return background(sys.argv[2:])
    tell_lost_output()
    if sys.argv[1:] == ["--version"]:
        from sublet.cli.rendering.version import own_version

        try:
            sys.stdout.write(f"{own_version()}\n")
            sys.stdout.flush()
        except BrokenPipeError:
            drop_output()
            return BROKEN_PIPE
        except OutputLost as error:
            drop_output()
            sys.stderr.write(f"error: the output could not be written: {error.strerror}\n")
            return 1
        return 0
    from sublet.cli.app import run

    return run()
