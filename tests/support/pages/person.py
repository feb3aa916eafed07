#!/usr/bin/env python3
"""``sublet`` on the stage: a fork of the tests' command server or, where a person is needed, a program in a terminal.

The person of this terminal types the passphrase wherever it is asked, and Ctrl-C once a command that would go on for
ever has shown something.
"""

import json
import os
import pty
import select
import signal
import socket
import sys

SUBLET = os.environ["STAGE_SUBLET"]
PASSPHRASE = b"correct horse battery staple\n"
ALONE = {"up", "doctor", "mcp"}
"""What starts programs, or looks where it is, is a process of its own on the machine of the stage."""
FOR_EVER = {"--follow", "--watch", "chat", "attach"}
SECONDS = 8.0


def in_terminal(argv: list[str]) -> int:
    """Run a command in a terminal, as its person; return its status."""
    lasting = any(word in FOR_EVER for word in argv) and "--get" not in argv
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(SUBLET, [SUBLET, *argv])
    asked = b""
    left = SECONDS
    while True:
        if not select.select([terminal], [], [], 0.4)[0]:
            left -= 0.4
            if lasting and (asked.strip() or left <= 0):
                os.write(terminal, b"\x03")
                asked = b""
            continue
        try:
            got = os.read(terminal, 65_536)
        except OSError:
            break
        sys.stdout.buffer.write(got)
        sys.stdout.buffer.flush()
        asked += got
        if asked.rstrip().endswith((b"assphrase:", b"more:")):
            os.write(terminal, PASSPHRASE)
            asked = b""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return 0 if lasting and status in {130, -signal.SIGINT} else status


def forked(argv: list[str]) -> int:
    """Run a command in a fork of the command server; return its status."""
    read, write = os.pipe()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STAGE_")}
    facts = {"argv": [SUBLET, *argv], "env": environment, "cwd": os.getcwd(), "network": f"/proc/{os.getpid()}/ns/net"}
    message = json.dumps(facts).encode()
    with socket.socket(fileno=os.dup(int(os.environ["STAGE_COMMANDS"]))) as commands:
        socket.send_fds(commands, [message], [0, 1, 2, write])
    os.close(write)
    with os.fdopen(read) as end:
        pid = int(end.readline())
        signal.signal(signal.SIGINT, lambda *_: os.kill(pid, signal.SIGINT))
        status = end.readline()
    return int(status) if status else 137


def main(argv: list[str]) -> int:
    """Run one command of the stage."""
    asks = (
        argv[:2] in (["approvals", "approve"], ["grants", "create"])
        or argv[:1] == ["approver"]
        or argv[:2] == ["text", "edit"]
    )
    if asks or any(word in FOR_EVER for word in argv[:1]) or {"--follow", "--watch"} & set(argv):
        return in_terminal(argv)
    if not argv or argv[0] in ALONE:
        os.execv(SUBLET, [SUBLET, *argv])
    return forked(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
