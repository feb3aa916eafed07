"""Tells a text that begins with a dash from an option, for all commands by one rule.

``send Work "- [ ] tests"`` and ``say ID "-1 from me"`` are texts: no option could be called that. A word such as
``--dry`` might be a misspelt option, so it stays an error, whose hint names ``--``, after which all is text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from sublet.protocol.patterns import Pattern

END_OF_OPTIONS: Final = "--"
FREE_TEXT: Final = frozenset({"TEXT", "PROMPT", "WORD"})
"""How the arguments are called that take what a person says."""
_LOOKS_LIKE_ONE = Pattern(r"--?[A-Za-z][A-Za-z0-9_-]*")


def is_option(argument: str, names: Collection[str]) -> bool:
    """Tell whether an argument is an option, or looks as if it was meant to be one.

    Args:
        argument: as it was typed.
        names: the options that the command has.
    """
    if len(argument) < 2 or not argument.startswith("-"):
        return False
    name = argument.partition("=")[0]
    return name in names or _LOOKS_LIKE_ONE.fullmatch(name) is not None


def texts_last(parameters: Sequence[Any], arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command with texts that begin with a dash after ``--``, so that they are none.

    Args:
        parameters: what the command takes, as typer has it.
        arguments: as they were typed; without such a text they are returned as they are.
    """
    options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
    names = {name for parameter in options for name in (*parameter.opts, *parameter.secondary_opts)}
    valued = {name for parameter in options if not (parameter.is_flag or parameter.count) for name in parameter.opts}
    first: list[str] = []
    texts: list[str] = []
    left = list(arguments)
    dashed = False
    while left:
        argument = left.pop(0)
        if argument == END_OF_OPTIONS:
            texts += left
            break
        if is_option(argument, names):
            first.append(argument)
            if argument in valued and left:
                first.append(left.pop(0))
            continue
        dashed = dashed or (argument.startswith("-") and len(argument) > 1)
        texts.append(argument)
    return [*first, END_OF_OPTIONS, *texts] if dashed else list(arguments)


def takes_text(command: Any) -> bool:
    """Tell whether a command has an argument that takes what a person says."""
    return any(
        parameter.param_type_name == "argument" and parameter.metavar in FREE_TEXT
        for parameter in getattr(command, "params", ())
    )
