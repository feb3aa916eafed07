"""An ACP agent that says what a real one has said: ``python recorded_acp.py LOG``.

``LOG`` is a conversation as it was recorded between Sublet and the program, a line each: ``> `` what Sublet said,
``< `` what the program said, ``! `` what it printed on its standard error. Where Sublet has spoken, it is waited for;
that it asks for the same is checked. The directory is ``/lease`` there, and the ids of requests are those of now.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = "/lease"
WORKSPACE = "/mount/workspace"


def main(log: Path) -> None:
    """Play a conversation, and end with its other side."""
    root, ids = ROOT, dict[str, Any]()
    for line in log.read_text(encoding="utf-8").splitlines():
        mark, text = line[:2], line[2:]
        if mark == "! ":
            print(text, file=sys.stderr, flush=True)
        elif mark == "> ":
            recorded, said = json.loads(text), json.loads(sys.stdin.readline())
            assert said.get("method") == recorded.get("method"), (said, recorded)
            if "method" in said and "id" in said:
                ids[str(recorded["id"])] = said["id"]
            if said.get("method") == "session/new":
                root = said["params"]["cwd"].removesuffix(WORKSPACE)
        else:
            told = json.loads(text.replace(ROOT, root).replace(ROOT[1:], root[1:])) if text.startswith("{") else None
            if told is not None and "method" not in told:
                told["id"] = ids[str(told["id"])]
            print(text if told is None else json.dumps(told), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
