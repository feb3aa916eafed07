"""No bound, no name on the wire, no default and no shape of what comes in changes by the way."""

from __future__ import annotations

import json

from support.settled import kept, settled, written


def test_what_is_settled_stays_as_it_is() -> None:
    found, before = json.loads(written(settled("workspace.sftp"))), kept("workspace.sftp")
    changed = {
        f"{module}: {name}": (before.get(module, {}).get(name), found.get(module, {}).get(name))
        for module in before | found
        for name in before.get(module, {}) | found.get(module, {})
        if before.get(module, {}).get(name) != found.get(module, {}).get(name)
    }
    assert not changed, "if that is meant, draw it anew: PYTHONPATH=tests python -m support.settled"
