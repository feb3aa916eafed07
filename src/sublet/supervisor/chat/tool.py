"""A tool that a model may call: its name here, its form on the wire, and what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sublet.policy.guardrail.schema import CheckedSchema
from sublet.protocol.canonical import JsonValue
from sublet.supervisor.chat.arguments import BadArguments

MAX_RESULT_CHARS: Final = 40_000
"""What a model is given of one result; the middle of what is longer is left out."""

Arguments = Mapping[str, JsonValue]


class ToolFailed(Exception):
    """A tool could not do what was asked; its text tells the model why."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a call: ``text`` is for the model, ``facts`` are for the journal."""

    text: str
    facts: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    Args:
        name: as policy knows it, such as ``file.read``.
        description: for the model.
        schema: of its arguments.
        run: does it; raises ``ToolFailed``.
        paths: tells which paths a call touches, relative to the view; absolute where outside of it.
        shown: tells for people, in a few words, what a call is about.
        wire: its name on the wire, where that is not made of ``name``.
        sifted: whether it asks the gate about all that it finds (``ToolCall.sifted``).
    """

    name: str
    description: str
    schema: CheckedSchema
    run: Callable[[Arguments], Awaitable[ToolResult]]
    paths: Callable[[Arguments], tuple[str, ...]] = lambda _: ()
    shown: Callable[[Arguments], str] = lambda _: ""
    wire: str = ""
    sifted: bool = False

    @property
    def wire_name(self) -> str:
        """Its name on the wire, where dots are not allowed."""
        return self.wire or self.name.replace(".", "__" if self.name.startswith("mcp.") else "_")

    def offered(self) -> JsonValue:
        """Return it in the endpoint's form."""
        function: dict[str, JsonValue] = {
            "name": self.wire_name,
            "description": self.description,
            "parameters": self.schema.document,
        }
        return {"type": "function", "function": function}

    def check(self, arguments: Arguments) -> None:
        """Refuse arguments that do not satisfy the schema.

        Raises:
            BadArguments: naming the first defect.
        """
        issue = next(iter(self.schema.issues(dict(arguments))), None)
        if issue is not None:
            raise BadArguments(f"wrong arguments: {issue.line()}")


def bounded(text: str, limit: int = MAX_RESULT_CHARS) -> str:
    """Return ``text`` with its middle left out where it is longer than ``limit``, and a note of how much."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def text_of(arguments: Arguments, name: str, default: str = "") -> str:
    """Return an argument that the schema says is text."""
    value = arguments.get(name, default)
    return value if isinstance(value, str) else default


def number_of(arguments: Arguments, name: str, default: int) -> int:
    """Return an argument that the schema says is a whole number."""
    value = arguments.get(name, default)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else default
