"""Tells which parts of a module decide nothing, so that what mutmut would change there is no mutant.

Each class of them is one that no test of ours is meant to notice:

- **Words for people**: messages and hints of errors, logs, descriptions, what is put together of such texts, and where
  they are cut. Tests of wording hold these. Codes, keys, names and what is compared or sent are no words: a text counts
  as words where it has a blank and is neither a pattern (``r"..."``) nor a list of names, or where an error is given
  it as its ``message`` or ``hint``.
- **What only the type checker reads**: the type of ``cast``, ``TypeVar``, ``NewType``, bodies of protocols, overloads,
  what is imported for types alone, and aliases of types.
- **How Python makes things**: ``slots``, ``__all__``, ``__test__``, when pydantic builds a model, ``strict`` of
  ``zip``, which holds the programmer to something that is so always.
- **Another spelling of the same**: ``"UTF-8"`` for ``"utf-8"``, ``encode()`` for ``encode("utf-8")``, ``get(key)`` for
  ``get(key, None)``, ``follow_symlinks=None`` for ``follow_symlinks=False``, ``from_bytes(raw)`` for
  ``from_bytes(raw, "big")``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst
from libcst import matchers as m

FOR_TYPES: Final = frozenset({"TypeVar", "NewType", "ParamSpec", "dataclass"})
"""Calls that say something to the type checker, or how a class is made."""
ASKED_FOR_TRUTH: Final = frozenset(
    {"allow_nan", "ensure_ascii", "exact", "follow_symlinks", "granted", "inheritable", "last"}
)
"""Arguments by keyword of which only is asked whether they are true, so that ``None`` is as good as ``False``."""
LOGS: Final = frozenset({"_log", "log", "logger", "_logger"})
MAKES_LOG: Final = m.Call(func=m.Name("get_logger") | m.Attribute(attr=m.Name("get_logger")))
NAMES_OF_WORDS: Final = frozenset({"message", "hint"})
DESCRIBING: Final = frozenset({"description", "title", "examples", "hint", "reason"})
"""Arguments by keyword that are for people wherever they are."""
SHORTENING: Final = frozenset({"clean", "clean_line"})
MAKING: Final = frozenset({("ConfigDict", "defer_build"), ("zip", "strict")})
ALIASED: Final = frozenset(
    {
        "Awaitable",
        "Callable",
        "Iterable",
        "Iterator",
        "Mapping",
        "Sequence",
        "dict",
        "frozenset",
        "list",
        "set",
        "tuple",
    }
)
NAMES: Final = re.compile(r"[a-z0-9_.]+( [a-z0-9_.]+)* ?")
"""A list of names in one text, where one of them has a dot or an underscore within."""
ENCODINGS: Final = frozenset({"utf-8", "ascii", "latin-1"})


def silent_parts(module: cst.Module) -> set[int]:
    """Return the identities of all nodes below which nothing decides."""
    found: set[int] = set()
    left: list[cst.CSTNode] = [module]
    while left:
        node = left.pop()
        quiet = list(_silent(node))
        for one in quiet:
            found.update(id(inner) for inner in _walk(one))
        left += [child for child in node.children if id(child) not in found]
    return found


def same_meaning(node: cst.CSTNode, changed: cst.CSTNode) -> bool:
    """Tell whether a change spells the same in another way."""
    if isinstance(node, cst.SimpleString) and isinstance(changed, cst.SimpleString):
        return node.raw_value in ENCODINGS and changed.raw_value.lower() == node.raw_value
    if isinstance(node, cst.Call) and isinstance(changed, cst.Call) and len(node.args) == len(changed.args):
        pairs = [pair for pair in zip(node.args, changed.args, strict=True) if not pair[0].deep_equals(pair[1])]
        if pairs and all(_asked_for_truth(*pair) for pair in pairs):
            return True
    if isinstance(node, cst.Call) and isinstance(changed, cst.Call) and isinstance(node.func, cst.Attribute):
        method, before, after = node.func.attr.value, node.args, changed.args
        if method in ("from_bytes", "to_bytes"):
            return (
                len(before) == 2 and list(after) == [before[0]] and m.matches(before[1].value, m.SimpleString('"big"'))
            )
        if method in ("encode", "decode"):
            return len(before) == 1 and not after and m.matches(before[0].value, m.SimpleString('"utf-8"'))
        if method == "get" and len(before) == 2 and len(after) == 1 and m.matches(before[1].value, m.Name("None")):
            return after[0] is before[0]
    return False


def _asked_for_truth(argument: cst.Arg, changed: cst.Arg) -> bool:
    if argument.keyword is None or argument.keyword.value not in ASKED_FOR_TRUTH:
        return False
    return m.matches(argument.value, m.Name("False")) and m.matches(changed.value, m.Name("None"))


def words(node: cst.CSTNode) -> bool:
    """Tell whether an expression is a text for people, and no name, key or pattern."""
    match node:
        case cst.SimpleString():
            return "r" not in node.prefix and " " in node.raw_value.strip() and not _lists_names(node.raw_value)
        case cst.FormattedString():
            texts = "".join(part.value for part in node.parts if isinstance(part, cst.FormattedStringText))
            return " " in texts.strip() or texts.startswith(" ") or texts.endswith(" ")
        case cst.ConcatenatedString():
            return words(node.left) or words(node.right)
        case cst.Subscript():
            return words(node.value)
        case cst.IfExp():
            return words(node.body) or words(node.orelse)
        case cst.BinaryOperation(operator=cst.Add()) | cst.BooleanOperation(operator=cst.Or()):
            return words(node.left) or words(node.right)
        case cst.Call(func=cst.Name(value=name), args=[first, *_]) if name in SHORTENING:
            return words(first.value)
        case cst.Call(func=cst.Attribute(value=cst.SimpleString(value=between), attr=cst.Name(value="join"))):
            return len(between) > len('" "') and " " in between
    return False


def _lists_names(text: str) -> bool:
    return NAMES.fullmatch(text) is not None and re.search(r"\w[._]\w", text) is not None


def _silent(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Return what is silent of a node itself and of its children."""
    if isinstance(node, cst.BaseExpression) and words(node):
        yield node
    match node:
        case cst.ClassDef() if any(_is_protocol(base.value) for base in node.bases):
            yield node
        case cst.FunctionDef() if any(m.matches(one.decorator, m.Name("overload")) for one in node.decorators):
            yield node
        case cst.If(test=cst.Name(value="TYPE_CHECKING")):
            yield node.body
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]):
            if name in ("__all__", "__slots__", "__test__") or _for_types(node.value) or words(node.value):
                yield node
        case cst.AnnAssign(value=cst.BaseExpression() as value) if words(value):
            yield node
        case cst.Expr(value=cst.Call() as call) if _is_log(call):
            yield node
        case cst.Raise(exc=cst.Call() as call):
            yield from (one for one in call.args if _names_words(one))
        case cst.Call():
            yield from _of_call(node)


def _of_call(call: cst.Call) -> Iterator[cst.CSTNode]:
    name = call.func.value if isinstance(call.func, cst.Name) else ""
    if name in FOR_TYPES or m.matches(call, MAKES_LOG):
        yield call
    elif name == "cast" and call.args:
        yield call.args[0]
    for one in call.args:
        keyword = one.keyword.value if one.keyword else ""
        if words(one.value) or keyword in DESCRIBING or (name, keyword) in MAKING:
            yield one


def _names_words(argument: cst.Arg) -> bool:
    """Tell whether an argument of an error is called as words are."""
    keyword = argument.keyword.value if argument.keyword else ""
    return keyword in NAMES_OF_WORDS or (
        isinstance(argument.value, cst.Name) and argument.value.value in NAMES_OF_WORDS
    )


def _for_types(value: cst.BaseExpression) -> bool:
    called = m.matches(value, m.Call(func=m.Name(m.MatchIfTrue(lambda name: name in FOR_TYPES))))
    return called or m.matches(
        value, MAKES_LOG | m.Subscript(value=m.Name(m.MatchIfTrue(lambda name: name in ALIASED)))
    )


def _is_protocol(base: cst.BaseExpression) -> bool:
    return m.matches(base, m.Name("Protocol") | m.Subscript(value=m.Name("Protocol")))


def _is_log(call: cst.Call) -> bool:
    receiver = call.func.value if isinstance(call.func, cst.Attribute) else None
    if isinstance(receiver, cst.Attribute):
        receiver = receiver.attr
    return isinstance(receiver, cst.Name) and receiver.value in LOGS


def _walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    left = [node]
    while left:
        one = left.pop()
        yield one
        left += one.children
