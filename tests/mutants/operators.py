"""What mutmut would change in a module, as one text a mutant.

This is the only module that knows mutmut: it takes its operators, and leaves its runner aside (``docs/dependencies.md``
says why). What mutmut offers is cut down to what decides something (``silent``).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, CodeSpan, MetadataWrapper
from mutmut.mutation.file_mutation import Mutation, create_mutations

from mutants.silent import same_meaning, silent_parts


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
    number: int = 0
    """Among all that mutmut makes of the module, also what is silent."""

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
        self._mutations = {number: one for number, one in enumerate(mutations) if _decides(one, silent)}

    @property
    def numbers(self) -> list[int]:
        """Return the number of each mutant: what is silent has one as well, and is left out."""
        return list(self._mutations)

    def __iter__(self) -> Iterator[Mutant]:
        """Make one after another."""
        return map(self.mutant, self._mutations)

    def of_function(self, function: str) -> Iterator[Mutant]:
        """Make those of one function, or of what is outside of all."""
        for number, one in self._mutations.items():
            part: cst.CSTNode = one.contained_by_top_level_function or self._module
            if self._names.get(part, "") == function:
                yield self.mutant(number)

    def mutant(self, number: int) -> Mutant:
        """Make the mutant of this number."""
        one = self._mutations[number]
        part: cst.CSTNode = one.contained_by_top_level_function or self._module
        source = self._in_place(one) or self._whole(one, part)
        removed, added = _difference(self.text.splitlines(), source.splitlines())
        return Mutant(self.file, source, self._names.get(part, ""), removed, added, number)

    def _in_place(self, one: Mutation) -> str:
        """Write the change where the original stands; an empty text where that is not simply its code."""
        span = self._spans.get(one.original_node)
        if span is None:
            return ""
        before = self._module.code_for_node(one.original_node).encode()
        if self._bytes[span.start : span.start + span.length] != before:
            return ""
        after = self._module.code_for_node(one.mutated_node).encode()
        return (self._bytes[: span.start] + after + self._bytes[span.start + span.length :]).decode()

    def _whole(self, one: Mutation, part: cst.CSTNode) -> str:
        """Write the module or the function with the change, which takes long."""
        changed = part.deep_replace(one.original_node, one.mutated_node)
        assert isinstance(changed, cst.CSTNode)
        return changed.code if isinstance(changed, cst.Module) else self._with(part, changed)

    def _with(self, part: cst.CSTNode, changed: cst.CSTNode) -> str:
        code = self._module.code_for_node(part)
        if self.text.count(code) == 1:
            return self.text.replace(code, self._module.code_for_node(changed))
        whole = self._module.deep_replace(part, changed)
        assert isinstance(whole, cst.Module)
        return whole.code

    @cached_property
    def _bytes(self) -> bytes:
        return self.text.encode()

    @cached_property
    def _spans(self) -> Mapping[cst.CSTNode, CodeSpan]:
        wrapper = MetadataWrapper(self._module, unsafe_skip_copy=True)
        return wrapper.resolve(ByteSpanPositionProvider)

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
