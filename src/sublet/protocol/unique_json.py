"""JSON that somebody wrote by hand: what says one thing twice says nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def unique_json(raw: bytes) -> Any:
    """Return the JSON document in ``raw``.

    Raises:
        ValueError: it is none, nested too deep, or an object has a name twice: which one would count?
    """
    try:
        return json.loads(raw, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name!r} is there twice in one object")
        found[name] = value
    return found
