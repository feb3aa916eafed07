"""Commands about rules: show, explain, lint, test."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.errors import Exit, sole_error
from sublet.cli.help import Sectioned, group, verbatim
from sublet.cli.options.values import JsonFlag, wrong_value
from sublet.cli.reaching.connection import leave, run, session_of
from sublet.cli.rendering.screen import Screen
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode

if TYPE_CHECKING:
    from sublet.daemon.api.policy import ExplainRequest, Explanation
    from sublet.daemon.control.client import ControlClient as Control
    from sublet.policy.config import PolicyConfig
    from sublet.policy.rules import Rule

FileArgument = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="Policy file; by default yours.", show_default=False)
]

policy = group(
    "policy",
    "Tell who may do what, and why.",
    verbatim(
        (
            "Examples",
            """sublet policy explain --subject mcp:claude --action delegation.create --resource bob
sublet policy explain --subject reviewer-1 --action tool.call --resource shell.exec --args '{"command": "ls"}'
sublet policy lint new-policy.json && sublet policy test new-policy.json""",
        )
    ),
)


@policy.command(cls=Sectioned, name="show")
def policy_show(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """Show every rule that holds, and where it comes from."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.operation import Nothing
        from sublet.daemon.api.policy import SHOW_POLICY

        view = await control.call(SHOW_POLICY, Nothing())
        if as_json:
            screen.emit(view.model_dump(mode="json"))
            return
        from sublet.cli.rendering.policy import policy_parts

        screen.show(*policy_parts(view))

    run(ctx, screen, body)


@policy.command(cls=Sectioned, name="explain")
def policy_explain(
    ctx: typer.Context,
    subject: Annotated[
        str,
        typer.Option("--subject", metavar="S", help="KIND, KIND:NAME, or an agent of yours.", show_default=False),
    ] = "",
    action: Annotated[str, typer.Option("--action", metavar="A", help="As tool.call.", show_default=False)] = "",
    resource: Annotated[
        str, typer.Option("--resource", metavar="R", help="Peer, tool, directory, …", show_default=False)
    ] = "",
    entry: Annotated[
        int | None,
        typer.Option("--entry", metavar="N", help="Ask again what entry N of the log decided.", show_default=False),
    ] = None,
    role: Annotated[
        str, typer.Option("--role", metavar="ROLE", help="Role of the agent, if not its own.", show_default=False)
    ] = "",
    attribute: Annotated[
        list[str] | None,
        typer.Option("--attribute", metavar="NAME=VALUE", help="Such as access_mode=ro; repeat.", show_default=False),
    ] = None,
    args: Annotated[
        str, typer.Option("--args", metavar="JSON", help="Arguments of the tool, an object.", show_default=False)
    ] = "",
    at: Annotated[
        str, typer.Option("--at", metavar="TIME", help="As 2026-12-24T08:00:00Z; now.", show_default=False)
    ] = "",
    deny: Annotated[
        list[str] | None,
        typer.Option("--deny", metavar="TOOL", help="As if the request denied it.", show_default=False),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="TOOL", help="As if the request left this alone.", show_default=False),
    ] = None,
    granted: Annotated[bool, typer.Option("--granted", help="As if a grant were at hand.", show_default=False)] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Ask this file, not the daemon.", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Tell whether something is allowed, and by which rule.

    Nothing is done.
    Without a daemon, your files are asked.
    """
    from pydantic import ValidationError

    from sublet.daemon.api.policy import EXPLAIN, ExplainRequest

    screen = Screen(as_json=as_json)
    if file is not None and not file.exists():
        raise typer.BadParameter(f"there is no file {file}")
    if entry is not None and file is not None:
        raise typer.BadParameter("the log is the daemon's, and so are the rules that are asked: leave --file out")
    try:
        request = ExplainRequest(
            subject=subject,
            action=action,
            resource=resource,
            entry=entry,
            role=role,
            attributes=dict(_attribute(one) for one in attribute or []),
            args=_object(args),
            at=_moment(at) if at else None,
            granted=granted,
            deny=deny or [],
            only=only or [],
        )
    except ValidationError as error:
        raise wrong_value(error, {}) from None
    except ValueError as error:
        raise typer.BadParameter(" ".join(str(error).split())) from None

    async def main() -> Explanation:
        if file is not None:
            return _offline(request, file)
        try:
            async with session_of(ctx).connect() as control:
                return await control.call(EXPLAIN, request)
        except Exception as error:
            told = sole_error(error)
            if told is None or told.code is not LocalCode.DAEMON_UNAVAILABLE:
                raise
        screen.note("No daemon is running, so your files are asked.")
        return _offline(request, None)

    found = leave(screen, main)
    if as_json:
        screen.emit(found.model_dump(mode="json"))
        return
    from sublet.cli.rendering.policy import explanation_parts

    screen.show(*explanation_parts(found))


@policy.command(cls=Sectioned, name="lint")
def policy_lint(file: FileArgument = None, as_json: JsonFlag = False) -> None:
    """Find what is wrong with a policy file.

    Unknown fields, rules that can never match, and tests that fail. The status is 1 where anything is found. Warnings
    are of rules that hold less than they say.
    """
    screen = Screen(as_json=as_json)
    source, problems, config = _read(file, tested=True)
    warnings = [] if config is None else config.warnings(_agent_rules() if file is None else ())
    if not as_json:
        from sublet.cli.rendering.policy import warning_lines

        screen.show(*warning_lines(warnings))
    if as_json:
        screen.emit({"file": str(source), "problems": problems, "warnings": warnings})
    elif problems:
        from sublet.cli.rendering.policy import problem_lines

        screen.show(*problem_lines(source, problems))
    elif source.exists():
        screen.show(f"{source}: nothing is wrong with it.")
    else:
        screen.show(f"There is no {source}, so the built-in rules hold; nothing is wrong with them.")
    if problems:
        raise typer.Exit(Exit.ERROR)


@policy.command(cls=Sectioned, name="test")
def policy_test(file: FileArgument = None, as_json: JsonFlag = False) -> None:
    """Run the tests that a policy file carries.

    Each is a question with the expected decision. A file whose tests fail is not loaded. The status is 1 where one
    fails.
    """
    from sublet.policy.defaults import DEFAULT_RULES
    from sublet.policy.rule_tests import run_tests
    from sublet.policy.table import RuleTable

    screen = Screen(as_json=as_json)
    source, problems, config = _read(file, tested=False)
    results = []
    if config is not None:
        results = run_tests(config.tests, RuleTable((*DEFAULT_RULES, *config.rules)), config.limits)
    failed = [result for result in results if not result.passed]
    if as_json:
        from sublet.cli.rendering.policy import result_object

        tests = [result_object(result) for result in results]
        screen.emit({"file": str(source), "problems": problems, "tests": tests, "failed": len(failed)})
    else:
        from sublet.cli.rendering.policy import problem_lines, result_lines

        screen.show(*problem_lines(source, problems), *result_lines(results, screen.symbols))
        if config is not None and not results:
            screen.note(f"{source} carries no tests." if source.exists() else f"There is no {source}, and so no test.")
    if problems or failed:
        raise typer.Exit(Exit.ERROR)


def _read(file: Path | None, *, tested: bool) -> tuple[Path, list[str], PolicyConfig | None]:
    """Return the file that is meant, what is wrong with it, and what it says where nothing is."""
    from sublet.policy.config import BadPolicy, PolicyConfig, parse, read

    source = file or _own_file()
    try:
        document = read(source)
        if document is None and file is not None:
            return source, ["there is no such file"], None
        return source, [], PolicyConfig() if document is None else parse(document, tested=tested)
    except BadPolicy as bad:
        return source, list(bad.problems), None


def _own_file() -> Path:
    from sublet.daemon.config.daemon_config import DaemonConfig

    async def find() -> Path:
        config = DaemonConfig()
        return config.policy_file or Path(config.home.config_dir) / "policy.json"

    return leave(Screen(), find)


def _agent_rules() -> tuple[Rule, ...]:
    """Return the rules of your agents; those of a file that can't be loaded are told of elsewhere."""
    from sublet.daemon.config.daemon_config import DaemonConfig
    from sublet.daemon.governing.explain import own_agent_rules
    from sublet.protocol.errors import SubletError

    async def find() -> tuple[Rule, ...]:
        try:
            return own_agent_rules(DaemonConfig())
        except SubletError:
            return ()

    return leave(Screen(), find)


def _offline(request: ExplainRequest, file: Path | None) -> Explanation:
    from sublet.daemon.config.daemon_config import DaemonConfig
    from sublet.daemon.governing.explain import explained, policy_of

    found, role_of = policy_of(DaemonConfig(), file)
    return explained(found, request, role_of)


def _attribute(text: str) -> tuple[str, bool | int | str | list[str]]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"{text!r} is no NAME=VALUE")
    if value in ("true", "false"):
        return name, value == "true"
    if value.lstrip("-").isdecimal() and value.isascii():
        return name, int(value)
    return name, value.split(",") if name == "path" and "," in value else value


def _object(text: str) -> dict[str, JsonValue]:
    found = json.loads(text) if text else {}
    if not isinstance(found, dict):
        raise ValueError("--args is a JSON object")
    return found


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time; write 2026-12-24T08:00:00Z", param_hint="--at") from None
