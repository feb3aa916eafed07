"""What mutmut would change in a module, as one text a mutant.

This is the only module that knows mutmut: it takes its operators, and leaves its runner aside (``docs/dependencies.md``
says why). What mutmut offers is cut down to what decides something (``silent``).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Final, cast

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, WhitespaceInclusivePositionProvider
from mutmut.mutation.file_mutation import Mutation, create_mutations

from mutants.silent import same_meaning, silent_parts

INDENT: Final = "    "
MOST_DEPTH: Final = 12


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
        silent = silent_parts(self._module)
        self.mutations = [one for one in mutations if _decides(one, silent)]

    def __len__(self) -> int:
        """Return how many mutants there are."""
        return len(self.mutations)

    def __iter__(self) -> Iterator[Mutant]:
        """Make one after another."""
        return (self.mutant(index) for index in range(len(self)))

    def of_function(self, function: str) -> Iterator[Mutant]:
        """Make those of one function, or of what is outside of all."""
        for index, one in enumerate(self.mutations):
            part: cst.CSTNode = one.contained_by_top_level_function or self._module
            if self._names.get(part, "") == function:
                yield self.mutant(index)

    def mutant(self, index: int) -> Mutant:
        """Make the mutant of this number."""
        one = self.mutations[index]
        part: cst.CSTNode = one.contained_by_top_level_function or self._module
        source = self._put(one) or self.replaced(one)
        removed, added = _difference(self.text.splitlines(), source.splitlines())
        function = self._names.get(part, "")
        return Mutant(self.file, source, function, removed, added)

    def _put(self, one: Mutation) -> str | None:
        """Put the text of what is changed in the place of what was there; None where that could be another text."""
        span = self._spans.get(one.original_node)
        if span is None:
            return None
        start, end = (self._starts[at.line - 1] + at.column for at in (span.start, span.end))
        there, plain = self.text[start:end], self._module.code_for_node(one.original_node)
        for depth in range(MOST_DEPTH):  # lines of a node alone begin without what is before the whole statement
            before = "\n" + INDENT * depth
            if plain.replace("\n", before) == there:
                made = self._module.code_for_node(one.mutated_node).replace("\n", before)
                return self.text[:start] + made + self.text[end:]
        return None

    def replaced(self, one: Mutation) -> str:
        """Make the whole text anew, which takes long."""
        part: cst.CSTNode = one.contained_by_top_level_function or self._module
        changed = part.deep_replace(one.original_node, one.mutated_node)
        assert isinstance(changed, cst.CSTNode)
        return changed.code if isinstance(changed, cst.Module) else self._with(part, changed)

    @cached_property
    def _spans(self) -> Mapping[cst.CSTNode, CodeRange]:
        wrapper = MetadataWrapper(self._module, unsafe_skip_copy=True)
        return cast(Mapping[cst.CSTNode, CodeRange], wrapper.resolve(WhitespaceInclusivePositionProvider))

    @cached_property
    def _starts(self) -> Sequence[int]:
        """Where each line begins."""
        return [0, *accumulate(len(line) + 1 for line in self.text.split("\n"))]

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


def _decides(mutation: Mutation, silent: Container[int]) -> bool:
    node, changed = mutation.original_node, mutation.mutated_node
    if id(node) in silent or same_meaning(node, changed):
        return False
    if isinstance(node, cst.Call) and isinstance(changed, cst.Call):
        kept = {id(argument) for argument in changed.args}
        return all(id(argument) in kept or id(argument) not in silent for argument in node.args)
    return True


def _difference(before: Sequence[str], after: Sequence[str]) -> tuple[str, str]:
    """Return the lines that differ, without the blanks around them."""
    least = min(len(before), len(after))
    start = next((number for number in range(least) if before[number] != after[number]), least)
    same = next((number for number in range(least - start) if before[~number] != after[~number]), least - start)
    return _joined(before[start : len(before) - same]), _joined(after[start : len(after) - same])


def _joined(lines: Sequence[str]) -> str:
    return " ".join(line.strip() for line in lines)
