"""A gateway that keeps what it is sent as tickets: ``sublet gateway show tickets --json | python tickets.py FILE``."""

from __future__ import annotations

import sys
from pathlib import Path

from connection import Connection


def main() -> None:
    """Write a line for each request, and answer with its number, while the daemon is there."""
    file = Path(sys.argv[1])
    connection = Connection.shown()
    for message in connection.messages():
        if message.get("type") != "request":
            continue
        lines = file.read_text().splitlines() if file.exists() else []
        said = message["message"]
        text = " ".join(str(said["text"] if isinstance(said, dict) else said).split())
        with file.open("a") as tickets:
            tickets.write(f"{text}\n")
        connection.say("result", requestId=message["requestId"], success=True, output=f"Ticket {len(lines) + 1}.")


if __name__ == "__main__":
    main()
