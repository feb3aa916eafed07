"""One turn of ``messaging_since.py``, with the source of one version.

``python _messaging_turn.py CHECKOUT MESSAGES FLOOD`` prints one JSON object: what two processes of that version needed
in a room that had so many messages before.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Measure and print."""
    checkout, messages, flood = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    sys.path[:0] = [str(checkout / "benchmarks"), str(checkout / "tests")]
    import _message_rooms as rooms  # of that checkout, as all that it imports
    import messaging
    import sublet

    for module in (messaging, sublet):
        assert Path(str(module.__file__)).is_relative_to(checkout), f"{module.__file__} is not of {checkout}"
    figures = messaging.Figures()
    with tempfile.TemporaryDirectory(prefix="sublet-bench-") as name:
        directory = Path(name)
        room = rooms.begin(directory)
        rooms.grow(directory, room, messages)
        messaging.ours(directory, room, messaging.Load(paced=max(10, flood // 64), flood=flood), figures)
    delays = {f"{pace * 1e3:g}": figures.p50(pace) for pace in figures.delays_ms}
    print(
        json.dumps(
            {
                "delays_ms": delays,
                "rate": figures.rate,
                "send_us": figures.send_us[0],
                "take_us": figures.take_us[0],
                "start": figures.starts[0],
                "mib": figures.mib[0],
            }
        )
    )


if __name__ == "__main__":
    main()
