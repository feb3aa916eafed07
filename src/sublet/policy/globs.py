"""Globs: over names, where ``*`` is any text, and over paths, where whole components are compared (DESIGN 7).

A pattern that begins with a slash is one over absolute paths: ``*`` is one component or a part of one, ``**`` any
number of them, also none. So ``/srv/project`` never matches ``/srv/project-evil``, and ``/srv/project/**`` is the
directory and all that is in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from sublet.protocol.path_globs import PathGlob
from sublet.protocol.patterns import Pattern, glob

MAX_MATCHERS: Final = 1_024
"""Tests that are remembered beside those that the tables of rules hold: callers word patterns, too."""
MAX_PATHS: Final = 512
"""Paths whose components are remembered: every rule over paths asks for those of the same few."""
MAX_PATH_CHARS: Final = 512
"""Of a path whose components are remembered: a peer says how long those are that are asked about."""
ANY_DEPTH: Final = "**"

_WILDCARDS = Pattern(r"[*?\[]")
_LITERAL_RUNS = Pattern(r"\[[^\]]*\]|[*?]")


def is_literal(pattern: str) -> bool:
    """Tell whether ``pattern`` has no wildcard."""
    return _WILDCARDS.search(pattern) is None


def literal_prefix(pattern: str) -> str | None:
    """Return what a pattern of the form ``text*`` begins with; None for any other, and for one over paths."""
    if pattern.endswith("*") and not pattern.startswith("/") and is_literal(pattern[:-1]):
        return pattern[:-1]
    return None


def literal_directory(pattern: str) -> str:
    """Return the directory of an absolute pattern above which nothing of it is a wildcard."""
    wildcard = _WILDCARDS.search(pattern)
    return (pattern if wildcard is None else pattern[: wildcard.start()].rpartition("/")[0]) or "/"


def needed_literal(pattern: str) -> str:
    """Return the longest text that every match of ``pattern`` contains; for a pattern over paths, its beginning."""
    if pattern.startswith("/"):
        wildcard = _WILDCARDS.search(pattern)
        return pattern if wildcard is None else pattern[: wildcard.start()].rstrip("/")
    return max(_LITERAL_RUNS.split(pattern), key=len)


@functools.lru_cache(maxsize=MAX_MATCHERS)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return the fastest test of a name, or of an absolute path, against ``pattern``."""
    if pattern == "*":
        return lambda _name: True
    if pattern.startswith("/"):
        return path_matcher(pattern)
    if is_literal(pattern):
        return pattern.__eq__
    prefix = literal_prefix(pattern)
    if prefix is not None:
        return lambda name: name.startswith(prefix)
    expression = glob(pattern)
    return lambda name: expression.match(name) is not None


@functools.lru_cache(maxsize=MAX_MATCHERS)
def path_matcher(pattern: str) -> Callable[[str], bool]:
    """Return the test of a path, absolute or relative as the pattern is, component by component.

    A path with ``..`` or an empty component matches nothing: what it names can't be told from its text.
    """
    absolute = pattern.startswith("/")
    whole = _path_glob(pattern)

    def matches(path: str) -> bool:
        found = components(path)
        return found is not None and path.startswith("/") == absolute and whole.matches(found)

    return matches


def may_match_below(pattern: str, path: str) -> bool:
    """Tell whether ``pattern`` could match something in the directory ``path``; True where that can't be told."""
    found = components(path)
    if found is None:
        return True
    return path.startswith("/") == pattern.startswith("/") and _path_glob(pattern).may_match_below(found)


@functools.lru_cache(maxsize=MAX_MATCHERS)
def _path_glob(pattern: str) -> PathGlob[str]:
    parts = pattern.strip("/").split("/")
    return PathGlob([None if part == ANY_DEPTH else glob(part).match for part in parts])


def components(path: str) -> tuple[str, ...] | None:
    """Return the components of ``path``; None where ``..``, a NUL or nothing at all makes it tell nothing."""
    return _remembered_components(path) if len(path) <= MAX_PATH_CHARS else _components(path)


def _components(path: str) -> tuple[str, ...] | None:
    if not path or "\0" in path:
        return None
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    return None if ".." in parts else parts


_remembered_components = functools.lru_cache(maxsize=MAX_PATHS)(_components)


def within(path: str, scope: tuple[str, ...], *, absolute: bool) -> bool | None:
    """Tell whether ``path`` is ``scope`` or lies in it, by whole components; None where that can't be told."""
    parts = components(path)
    if parts is None:
        return None
    return path.startswith("/") == absolute and parts[: len(scope)] == scope


def covers(wide: str, narrow: str) -> bool:
    """Tell whether all that ``narrow`` matches is matched by ``wide`` as well; False also where it is unclear."""
    if wide in ("*", narrow):
        return True
    if is_literal(narrow):
        return matcher(wide)(narrow)
    if wide.startswith("/"):
        return wide.endswith("/" + ANY_DEPTH) and is_literal(wide[:-3]) and narrow.startswith(wide[:-2])
    prefix = literal_prefix(wide)
    return prefix is not None and narrow.startswith(prefix)


def defect(pattern: str) -> str:
    """Return why ``pattern`` can never match anything, or nothing."""
    if pattern != pattern.strip() or not pattern:
        return "it is empty, or begins or ends with a space"
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in pattern):
        return "it has a control character"
    opened = pattern.find("[")
    while opened >= 0:
        closed = pattern.find("]", opened + 2)
        if closed == -1:
            return "its '[' is not closed"
        inside = pattern[opened + 1 : closed]
        if not inside.isascii():
            return "characters in brackets are ASCII ones"
        if any(inside[i - 1] > inside[i + 1] for i in range(1, len(inside) - 1) if inside[i] == "-"):
            return f"'[{inside}]' is empty"
        opened = pattern.find("[", closed)
    return path_defect(pattern) if pattern.startswith("/") else ""


def path_defect(pattern: str) -> str:
    """Return why ``pattern`` can never match a path, absolute or relative, or nothing."""
    if pattern != "/" and (pattern.endswith("/") or "//" in pattern):
        return "a path has no empty component and no slash at its end"
    if {".", ".."} & set(pattern.split("/")) and pattern != ".":
        return "a path is compared without '.' and '..'"
    if any(ANY_DEPTH in part and part != ANY_DEPTH for part in pattern.split("/")):
        return "'**' stands for whole components, alone between slashes"
    return ""
