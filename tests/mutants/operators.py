"""What mutmut would change in a module, as one text a mutant.

This is the only module that knows mutmut: it takes its operators, and leaves its runner aside (``docs/dependencies.md``
says why). What mutmut offers is cut down to what decides something: words for people, which tests of wording hold, and
what is only there for the type checker are no mutants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import libcst as cst
from mutmut.mutation.file_mutation import Mutation, create_mutations

FOR_TYPES: Final = frozenset({"cast", "TypeVar", "NewType", "ParamSpec", "dataclass"})
"""Calls that say something to the type checker, or how a class is made, and decide nothing."""
LOGS: Final = frozenset({"_log", "log", "logger", "_logger"})
NOT_DECIDING: Final = re.compile(r"\s*(?:@dataclass|__slots__|__all__|from |import )")


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    file: str
    """Below ``src/sublet``."""
    source: str
    """The whole text of the module with the change."""
    function: str
    """The function or method of the top level that has the change, or an empty text."""
    before: str
    after: str

    @property
    def name(self) -> str:
        """How ``explained.toml`` calls it: what is changed into what, and where."""
        return f"{self.function or 'module'}: {self.before} -> {self.after}"


class MutatedModule:
    """All mutants of one module, made one by one as they are asked for."""

    def __init__(self, root: Path, file: str) -> None:
        """Parse the module.

        Args:
            root: of the package.
            file: below it.
        """
        self.file = file
        self.text = (root / file).read_text(encoding="utf-8")
        self._module, mutations, _, _ = create_mutations(file, self.text)
        self._mutations = [one for one in mutations if _decides(one)]

    def __len__(self) -> int:
        """Return how many mutants there are."""
        return len(self._mutations)

    def __iter__(self) -> Iterator[Mutant]:
        """Make one after another."""
        return (self.mutant(index) for index in range(len(self)))

    def of_function(self, function: str) -> Iterator[Mutant]:
        """Make those of one function, or of what is outside of all."""
        for index, one in enumerate(self._mutations):
            part: cst.CSTNode = one.contained_by_top_level_function or self._module
            if self._names.get(part, "") == function:
                yield self.mutant(index)

    def mutant(self, index: int) -> Mutant:
        """Make the mutant of this number."""
        one = self._mutations[index]
        part: cst.CSTNode = one.contained_by_top_level_function or self._module
        changed = part.deep_replace(one.original_node, one.mutated_node)
        assert isinstance(changed, cst.CSTNode)
        source = changed.code if isinstance(changed, cst.Module) else self._with(part, changed)
        removed, added = _difference(self.text.splitlines(), source.splitlines())
        function = self._names.get(part, "")
        return Mutant(self.file, source, function, removed, added)

    def _with(self, part: cst.CSTNode, changed: cst.CSTNode) -> str:
        code = self._module.code_for_node(part)
        if self.text.count(code) == 1:
            return self.text.replace(code, self._module.code_for_node(changed))
        whole = self._module.deep_replace(part, changed)
        assert isinstance(whole, cst.Module)
        return whole.code

    @cached_property
    def _names(self) -> dict[cst.CSTNode, str]:
        names: dict[cst.CSTNode, str] = {}
        for node in self._module.body:
            if isinstance(node, cst.FunctionDef):
                names[node] = node.name.value
            elif isinstance(node, cst.ClassDef):
                names |= {
                    inner: f"{node.name.value}.{inner.name.value}"
                    for inner in node.body.body
                    if isinstance(inner, cst.FunctionDef)
                }
        return names


def _decides(mutation: Mutation) -> bool:
    node, changed = mutation.original_node, mutation.mutated_node
    if isinstance(node, cst.BaseString):
        return not _for_people(node)
    if isinstance(node, cst.Call) and isinstance(changed, cst.Call):
        if _called(node) in FOR_TYPES or _receiver(node) in LOGS:
            return False
        return not any(_for_people(argument.value) for argument in _lost(node.args, changed.args))
    return True


def _lost(before: Sequence[cst.Arg], after: Sequence[cst.Arg]) -> list[cst.Arg]:
    kept = {id(argument) for argument in after}
    return [argument for argument in before if id(argument) not in kept]


def _for_people(node: cst.CSTNode) -> bool:
    """Tell whether it is a text with words, and no name, key or pattern."""
    if isinstance(node, cst.SimpleString):
        return " " in node.raw_value
    return isinstance(node, cst.FormattedString | cst.ConcatenatedString)


def _called(node: cst.Call) -> str:
    return node.func.value if isinstance(node.func, cst.Name) else ""


def _receiver(node: cst.Call) -> str:
    if isinstance(node.func, cst.Attribute) and isinstance(node.func.value, cst.Name):
        return node.func.value.value
    return ""


def _difference(before: Sequence[str], after: Sequence[str]) -> tuple[str, str]:
    """Return the lines that differ, without the blanks around them."""
    least = min(len(before), len(after))
    start = next((number for number in range(least) if before[number] != after[number]), least)
    same = next((number for number in range(least - start) if before[~number] != after[~number]), least - start)
    return _joined(before[start : len(before) - same]), _joined(after[start : len(after) - same])


def _joined(lines: Sequence[str]) -> str:
    return " ".join(line.strip() for line in lines)
