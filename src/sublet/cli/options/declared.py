"""Options that a command takes from a class that declares them, so that each is stated once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import get_type_hints

Given = Mapping[str, object]
"""What was given of declared options, by their names; what was not given is left to whoever is asked."""


def option_of(name: str) -> str:
    """Return the option of the command line under which a field ``name`` of a request is declared."""
    return f"--{name.replace('_', '-')}"


def takes(*declared: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each attribute of the classes ``declared``.

    Args:
        declared: their annotations are those of typer's parameters, their values the defaults.

    Returns:
        What decorates a command that has a keyword argument ``given``: it gets the options that differ from their
        defaults, by their names.
    """
    hints = {name: hint for one in declared for name, hint in get_type_hints(one, include_extras=True).items()}
    defaults = {name: getattr(one, name) for one in declared for name in get_type_hints(one)}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=hint)
        for name, hint in hints.items()
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = get_type_hints(command, include_extras=True)
        kept = [
            one.replace(annotation=own[one.name])
            for one in inspect.signature(command).parameters.values()
            if one.name != "given"
        ]

        @functools.wraps(command)
        def called(**arguments: object) -> None:
            said = {name: arguments.pop(name) for name in hints}
            command(**arguments, given={name: value for name, value in said.items() if value != defaults[name]})

        last = [one for one in kept if one.kind is inspect.Parameter.KEYWORD_ONLY]
        first = [one for one in kept if one.kind is not inspect.Parameter.KEYWORD_ONLY]
        called.__signature__ = inspect.Signature([*first, *added, *last])  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in (*first, *added, *last)}
        return called

    return decorate
