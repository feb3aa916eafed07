"""One table put into a TOML text, all other bytes of which stay as they are; the standard library only reads TOML."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from sublet.protocol.patterns import Pattern

_HEADER = Pattern(r"^[ \t]*\[", lines=True)
_BARE = Pattern(r"[A-Za-z0-9_-]+\Z")


def dump_table(path: tuple[str, ...], table: Mapping[str, Any]) -> str:
    """Return ``table`` under the header of ``path``, tables in it as tables of their own."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    lines = [f"[{'.'.join(_key(part) for part in path)}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    text = "\n".join(lines) + "\n"
    for key, value in table.items():
        if isinstance(value, dict):
            text += "\n" + dump_table((*path, key), value)
    return text


def put_table(text: str, path: tuple[str, ...], table: Mapping[str, Any]) -> str | None:
    """Return ``text`` with ``table`` at ``path``, in place of an older one.

    Args:
        text: valid TOML.
        path: keys that lead to the table.
        table: its new content: strings, numbers, booleans, lists of them, and tables.

    Returns:
        The new text, ``text`` itself where it says the same already, or None where more than this table would change.
    """
    before = tomllib.loads(text)
    if _get(before, path) == table:
        return text
    kept = _without_table(text, path) if _get(before, path) is not None else text
    gap = "" if not kept or kept.endswith("\n\n") else "\n" if kept.endswith("\n") else "\n\n"
    # However the old text was written: that nothing else changed is checked, not hoped for.
    try:
        after = kept + gap + dump_table(path, table)
        found = tomllib.loads(after)
    except (TypeError, tomllib.TOMLDecodeError):
        return None
    if _get(found, path) != table or _rest(found, path) != _rest(before, path):
        return None
    return after


def drop_table(text: str, path: tuple[str, ...]) -> str | None:
    """Return ``text`` without the table at ``path``, or None where more than this table would change."""
    before = tomllib.loads(text)
    if _get(before, path) is None:
        return text
    after = _without_table(text, path)
    try:
        found = tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        return None
    return after if _get(found, path) is None and _rest(found, path) == _rest(before, path) else None


def _without_table(text: str, path: tuple[str, ...]) -> str:
    """Cut the table at ``path`` and those below it out of ``text``, each from its header to the next one."""
    name = ".".join(_key(part) for part in path)
    bounds = [*(found.start() for found in _HEADER.finditer(text)), len(text)]
    kept = text[: bounds[0]]
    for start, end in pairwise(bounds):
        header = text[start:end].lstrip(" \t")[1:].lstrip(" \t")
        if not (header.startswith(name) and header[len(name) :].lstrip(" \t")[:1] in ("]", ".")):
            kept += text[start:end]
    return kept


def _get(config: Mapping[str, Any], path: tuple[str, ...]) -> object:
    found: object = config
    for part in path:
        if not isinstance(found, dict) or part not in found:
            return None
        found = found[part]
    return found


def _rest(config: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return ``config`` without what is at ``path``, nor what is empty without it."""
    first, *others = path
    found = dict(config)
    if first in found:
        inner = _rest(found[first], tuple(others)) if others and isinstance(found[first], dict) else {}
        if inner:
            found[first] = inner
        else:
            del found[first]
    return found


def _key(key: str) -> str:
    return key if _BARE.match(key) else json.dumps(key, ensure_ascii=False)


def _value(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)  # a JSON string, number or boolean is a TOML one
