"""The look of ``--help``: plain sections, commands grouped by what they are about, examples kept as written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from sublet.cli.dashes import texts_last
from sublet.protocol.patterns import Pattern

_RANGE = Pattern(r"(; )?(?:(\d+)<=)?x(?:>=\d+|<=(\d+))")
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def plain_facts(text: str) -> str:
    """Return the help of an option with its range in words: ``0<=x<=9`` is ``0 to 9``, and ``x>=0`` says nothing."""
    told = _RANGE.sub(lambda found: f"{found[1] or ''}{found[2]} to {found[3]}" if found[2] and found[3] else "", text)
    return told.replace("[]", "").replace("  [", " [").rstrip()


class _WithEpilog:
    """Sets the blocks after the options under headings of their own, as the sections above them have."""

    epilog: str | None

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the text after the options."""
        if self.epilog:
            formatter.write_paragraph()
            formatter.write_text(self.epilog)


class Sectioned(_WithEpilog, TyperCommand):
    """A command that lists its options under the headings they were given, in the order in which these first come.

    A text among its arguments may begin with a dash.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take texts that begin with a dash for what they are."""
        return super().parse_args(ctx, texts_last(self.get_params(ctx), args))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what stands after the name; what is required stands without braces."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section per heading."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                default = "Arguments" if is_argument else "Options"
                if is_argument:  # its type says nothing to people, and the usage line which of them are required
                    name, text = record
                    record = (name.partition(" <")[0].strip("[]{}"), text.removesuffix("[required]").rstrip())
                heading = getattr(parameter, "rich_help_panel", None)
                line = (record[0], plain_facts(record[1]))
                sections.setdefault(heading if isinstance(heading, str) else default, []).append(line)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


class Grouped(_WithEpilog, TyperGroup):
    """A group that lists its commands in the order and under the headings they were given."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order in which they were added."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section per heading."""
        sections: dict[str, list[tuple[str, str]]] = {}
        wide = max(len(name) for name in self.commands)
        for title, name, text in self.listed(formatter.width - wide - 6):
            sections.setdefault(title, []).append((name, text))
        for title, rows in sections.items():
            with formatter.section(title):
                # the same column in every section
                formatter.write_dl([(name.ljust(wide), text) for name, text in rows])

    def listed(self, limit: int) -> Iterator[tuple[str, str, str]]:
        """Yield the heading, the name and the first sentence, in at most ``limit`` characters, of each command."""
        for name, command in self.commands.items():
            if not command.hidden:
                heading = getattr(command, "rich_help_panel", None)
                title = heading if isinstance(heading, str) else "Commands"
                yield title, name, command.get_short_help_str(limit)


class Listed(Grouped):
    """A group that lists what it is about where no command is named: ``sublet peers`` is ``sublet peers list``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``list`` before the options where they are not for the group itself."""
        own = [name for parameter in self.get_params(ctx) for name in parameter.opts]
        if not args or (args[0].startswith("-") and args[0] not in own):
            args = ["list", *args]
        return super().parse_args(ctx, args)


class Defaulting(Grouped):
    """A group whose first command is meant where none is named: ``watch Work`` is ``watch events Work``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the first command before what is none, and no option of the group itself."""
        own = {*(name for parameter in self.get_params(ctx) for name in parameter.opts), *self.commands}
        if not args or args[0] not in own:
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


def group(
    name: str,
    text: str,
    epilog: str | None = None,
    *,
    invoke_without_command: bool = False,
    cls: type[Grouped] = Grouped,
) -> typer.Typer:
    """Return a group of commands in this look."""
    return typer.Typer(
        name=name,
        help=text,
        epilog=epilog,
        cls=cls,
        no_args_is_help=not invoke_without_command,
        invoke_without_command=invoke_without_command,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=SETTINGS,
    )


def listing(name: str, text: str) -> typer.Typer:
    """Return a group that has a command ``list``, and runs it where none is named."""
    return group(name, f"{text}\n\nWithout a command, they are listed.", cls=Listed)


def verbatim(*blocks: tuple[str, str]) -> str:
    """Return titled blocks of text whose lines are shown as they are."""
    return "\n\n".join(
        f"{title}:\n\n\b\n" + "\n".join(f"  {line}" for line in text.splitlines()) for title, text in blocks
    )
