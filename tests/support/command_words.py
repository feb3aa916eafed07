"""Commands of ours in any text, held against the command line that there is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

from typer.main import get_command

from sublet.cli.app import app
from sublet.cli.help import Grouped, Listed

TYPED = re.compile(r"(?:^|[\s(;|!=\"`])sublet ((?:[^#\n;|)\"'`]|\"[^\"]*\"|'[^']*')+)")
COMING = {"relay"}
"""Commands that pages tell of as what comes; those of the README's last lines, and no others."""


@cache
def command() -> Any:
    return get_command(app)


def typed(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of ours that a text has, placeholders of more words left out."""
    for found in TYPED.finditer(text.replace("\\\n", " ")):
        try:
            yield shlex.split(found[1].replace("…", " "))
        except ValueError:
            yield found[1].split()


def wrong(words: list[str]) -> str | None:
    """Return what is wrong with a command: one that is not there, or an option that it does not have."""
    known = command()
    options = {option for parameter in known.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options |= {"--help", "-h", "--install-completion", "--show-completion", "--version", "--debug"}
    at = 0
    while at < len(words) and hasattr(known, "commands"):
        word = words[at]
        if word not in known.commands:
            if (
                at and not isinstance(known, Listed) and type(known) is not Grouped
            ):  # one of its commands is meant where none is named
                of_each = (parameter for one in known.commands.values() for parameter in one.params)
                options |= {option for parameter in of_each for option in parameter.opts}
                break
            if word.startswith("-") or word.isupper():
                break
            if word in COMING:
                return None
            return f"there is no command '{' '.join(words[: at + 1])}'"
        known = known.commands[word]
        options |= {option for parameter in known.params for option in (*parameter.opts, *parameter.secondary_opts)}
        if hasattr(known, "commands") and "list" in known.commands:
            listed = known.commands["list"].params
            options |= {option for parameter in listed for option in (*parameter.opts, *parameter.secondary_opts)}
        at += 1
    for word in words[at:]:
        if word == "--":
            break
        option = word.partition("=")[0]
        if re.fullmatch(r"--?[a-z][a-z-]*", option) and option not in options:
            return f"'sublet {' '.join(words)}' has no option {option}"
    return None
