"""Puts one table into a TOML file of another program; what the user has written there stays as it is.

tomlkit edits the text, so that comments, order and spelling survive. The standard library, which only reads TOML,
decides what is valid TOML, and reads the result: an edit that would change anything else is not made.

Weak: tomlkit takes about five seconds for a megabyte. The files are the user's own, and the command waits for nothing
else.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, MutableMapping
from typing import Any

import tomlkit
from tomlkit.container import OutOfOrderTableProxy
from tomlkit.items import InlineTable, Table

_TABLES = (Table, InlineTable, OutOfOrderTableProxy, tomlkit.TOMLDocument)


def dump_table(path: tuple[str, ...], table: Mapping[str, Any]) -> str:
    """Return ``table`` under the header of ``path``, tables in it as tables of their own."""
    document = tomlkit.document()
    _parent(document, path)[path[-1]] = _filled(tomlkit.table(), table)
    return tomlkit.dumps(document)


def put_table(text: str, path: tuple[str, ...], table: Mapping[str, Any]) -> str | None:
    """Return ``text`` with ``table`` at ``path``; of an older one, only the keys that differ are written anew.

    Args:
        text: valid TOML.
        path: keys that lead to the table.
        table: its new content: what TOML can hold, and no None.

    Returns:
        The new text, ``text`` itself where it says the same already, or None where more than this table would change.

    Raises:
        tomllib.TOMLDecodeError: ``text`` is no TOML.
    """
    before = tomllib.loads(text)
    if _get(before, path) == table:
        return text
    edits = (_updated,) if _get(before, path) is not None else (_appended, _updated)
    # However the old text was written: that nothing else changed is checked, not hoped for.
    for edit in edits:
        try:
            after = edit(text, path, table)
            found = tomllib.loads(after)
        except Exception:  # noqa: S112 - the user's file decides what the editor meets, and the user can do it by hand
            continue
        if _get(found, path) == table and _rest(found, path) == _rest(before, path):
            return after
    return None


def drop_table(text: str, path: tuple[str, ...]) -> str | None:
    """Return ``text`` without the table at ``path``, or None where more than this table would change.

    Raises:
        tomllib.TOMLDecodeError: ``text`` is no TOML.
    """
    before = tomllib.loads(text)
    if _get(before, path) is None:
        return text
    try:
        document = _parse(text)
        del _parent(document, path)[path[-1]]
        after = _with_comments(text, tomlkit.dumps(document))
        found = tomllib.loads(after)
    except Exception:  # as above
        return None
    return after if _get(found, path) is None and _rest(found, path) == _rest(before, path) else None


def _appended(text: str, path: tuple[str, ...], table: Mapping[str, Any]) -> str:
    """Return ``text`` with the table behind all else, so that no comment comes between it and what it is about."""
    end = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text or text.endswith(end * 2) else end if text.endswith(end) else end * 2
    return text + gap + dump_table(path, table).replace("\n", end)


def _updated(text: str, path: tuple[str, ...], table: Mapping[str, Any]) -> str:
    """Return ``text`` with the table where it is, or in one line with its siblings."""
    document = _parse(text)
    _set(_parent(document, path), path[-1], table)
    return _line_ends(text, tomlkit.dumps(document))


def _parse(text: str) -> tomlkit.TOMLDocument:
    document = tomlkit.parse(text)
    if tomlkit.dumps(document) != text:
        raise ValueError("the editor does not keep this text as it is")
    return document


def _parent(document: tomlkit.TOMLDocument, path: tuple[str, ...]) -> MutableMapping[str, Any]:
    """Return the table that holds the last key of ``path``; what is missing of it is made, without a header."""
    found: MutableMapping[str, Any] = document
    for part in path[:-1]:
        if part not in found:
            found[part] = tomlkit.table(is_super_table=True)
        inner = found[part]
        if not isinstance(inner, _TABLES):
            raise TypeError(f"{part} is no table")
        found = inner
    return found


def _update(old: MutableMapping[str, Any], table: Mapping[str, Any]) -> None:
    """Make ``old`` say what ``table`` says; what says it already is not touched."""
    for key in [key for key in old if key not in table]:
        del old[key]
    for key, value in table.items():
        _set(old, key, value)


def _set(old: MutableMapping[str, Any], key: str, value: object) -> None:
    found = old.get(key)
    if isinstance(found, _TABLES) and isinstance(value, Mapping):
        _update(found, value)
    elif isinstance(value, Mapping):
        old[key] = _filled(tomlkit.inline_table() if isinstance(old, InlineTable) else tomlkit.table(), value)
    elif key not in old or found != value:
        old[key] = value


def _filled(empty: Any, table: Mapping[str, Any]) -> Any:
    """Return ``empty`` with ``table`` in it; plain keys come first, since a table below would take them in."""
    for key, value in sorted(table.items(), key=lambda item: isinstance(item[1], Mapping)):
        inner = tomlkit.inline_table() if isinstance(empty, InlineTable) else tomlkit.table()
        empty[key] = _filled(inner, value) if isinstance(value, Mapping) else value
    return empty


def _line_ends(before: str, after: str) -> str:
    """Return ``after`` with the line ends of ``before``, where those are all of one kind."""
    if "\r\n" in before and before.count("\n") == before.count("\r\n"):
        return after.replace("\r\n", "\n").replace("\n", "\r\n")
    return after


def _with_comments(before: str, after: str) -> str:
    """Return ``after`` with those of the lines cut out of ``before`` that belong to what follows the table.

    tomlkit takes all lines up to the next header for the table's own. A comment behind an empty line is about what
    comes next.
    """
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    start = 0
    while start < len(new) and old[start] == new[start]:
        start += 1
    tail = len(new) - start
    if tail and old[-tail:] != new[start:]:
        return after  # cut out in several places
    cut = old[start : len(old) - tail]
    first = len(cut)
    while first and (not cut[first - 1].strip() or cut[first - 1].lstrip().startswith("#")):
        first -= 1
    while first < len(cut) and cut[first].strip():
        first += 1  # a comment right behind the last key is about the table
    while first < len(cut) and not cut[first].strip():
        first += 1
    kept = cut[first:]
    if not tail and not kept:
        while start and not new[start - 1].strip():
            start -= 1  # the empty line ahead of the table
    return "".join(new[:start] + kept + old[len(old) - tail :])


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
