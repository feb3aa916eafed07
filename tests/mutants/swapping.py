"""Puts the changed code of functions in the place of the loaded, so that a mutant needs no import.

A function that is loaded keeps its identity: whoever holds it (a class, a table, a validator of pydantic) calls the new
code. What is outside of functions has run already; such mutants are started anew (``ModuleLevelError``).
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType

_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
"""What runs with the body that it stands in, though it is code of its own."""
Functions = dict[tuple[str, str, int], list[FunctionType]]
"""Loaded functions by their file, name and first line."""


class ModuleLevelError(Exception):
    """The change is outside of functions, or can't be swapped in."""


def loaded_functions(files: Collection[str]) -> Functions:
    """Return the functions of these files that are loaded."""
    gc.unfreeze()
    found: Functions = {}
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename in files:
            code = one.__code__
            found.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(one)
    gc.freeze()
    return found


def changed_code(path: Path, before: str, after: str) -> list[tuple[CodeType, CodeType]]:
    """Return the code objects that differ, each outermost function with all that is in it.

    Raises:
        ModuleLevelError: if anything differs outside of functions.
        SyntaxError: if the change can't be compiled.
    """
    return list(_differing(_original(path, before), _compiled(path, after)))


def swap(pairs: Collection[tuple[CodeType, CodeType]], functions: Functions) -> None:
    """Give the loaded functions the changed code.

    Raises:
        ModuleLevelError: if no such function is loaded, or the code has other free variables.
    """
    swapped = 0
    for old, new in pairs:
        for function in functions.get((old.co_filename, old.co_qualname, old.co_firstlineno), ()):
            if len(new.co_freevars) != len(old.co_freevars):
                raise ModuleLevelError
            function.__code__ = new
            swapped += 1
    if not swapped:
        raise ModuleLevelError


@lru_cache(maxsize=4)
def _original(path: Path, text: str) -> CodeType:
    return _compiled(path, text)


def _compiled(path: Path, text: str) -> CodeType:
    return compile(text, str(path), "exec", dont_inherit=True)


def _differing(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Look for differences in what runs at import: modules and bodies of classes."""
    if _shape(old) != _shape(new):
        raise ModuleLevelError
    for inner, changed in zip(_inner(old), _inner(new), strict=True):
        if inner == changed:
            continue
        if inner.co_name in _COMPREHENSIONS:
            raise ModuleLevelError
        if _is_function(inner):
            yield from _with_inner(inner, changed)
        else:
            yield from _differing(inner, changed)


def _with_inner(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    yield old, new
    left = _inner(new)
    for inner in _inner(old):
        other = next((one for one in left if one.co_qualname == inner.co_qualname), None)
        if other is not None:
            left.remove(other)
            yield from _with_inner(inner, other)


def _inner(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & 0x2)  # CO_NEWLOCALS; the body of a class has it not.


def _shape(code: CodeType) -> tuple[object, ...]:
    """Return all of a code object but what is in it, and lines."""
    constants = tuple(
        (type(one), one.co_qualname if isinstance(one, CodeType) else repr(one)) for one in code.co_consts
    )
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_flags
