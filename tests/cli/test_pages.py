"""The written pages say what the code is."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from sublet.cli.app import app, run
from sublet.cli.errors import MEANING
from sublet.cli.help import plain_facts
from sublet.protocol.errors import ErrorCode, LocalCode
from support.fake_control import lines

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


def page(name: str) -> str:
    """Return the text of a page."""
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_error_code_is_explained_and_none_is_invented() -> None:
    explained = re.findall(r"^\| `([A-Z_]+)` \|", page("docs/errors.md"), flags=re.MULTILINE)

    assert sorted(explained) == sorted([*ErrorCode, *LocalCode])


def test_every_exit_status_is_documented() -> None:
    documented = re.findall(r"^\| (\d+) \| (.+?) \|$", page("docs/cli.md"), flags=re.MULTILINE)

    assert [int(number) for number, _ in documented] == [status.value for status in MEANING]
    for (_, text), meaning in zip(documented, MEANING.values(), strict=True):
        assert text.replace("`", "").startswith(meaning)


def test_every_command_and_option_is_documented() -> None:
    text = page("docs/cli.md")
    root = get_command(app)
    for name, command in getattr(root, "commands").items():  # noqa: B009 - the type of groups is typer's secret
        assert f"`{name}" in text, name
        for inner_name, inner in getattr(command, "commands", {"": command}).items():
            assert f"`{name} {inner_name}".strip() in text
            for parameter in inner.params:
                shown = [option for option in parameter.opts if option.startswith("--") and not parameter.hidden]
                assert all(option in text for option in shown), f"{name} {inner_name} {shown}"


def test_usage_lines_have_no_braces(capsys: pytest.CaptureFixture[str]) -> None:
    for argv, usage in ((["search"], "sublet search [OPTIONS] WORD..."), (["send"], "sublet send [OPTIONS] ROOM TEXT")):
        assert run([*argv, "--help"]) == 0
        assert capsys.readouterr().out.splitlines()[0] == f"Usage: {usage}"


def test_help_is_grouped_and_no_summary_is_cut_at_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    groups = {name for name, command in getattr(get_command(app), "commands").items() if hasattr(command, "commands")}  # noqa: B009
    for argv in ([], *([name] for name in groups)):
        assert run([*argv, "--help"]) == 0
        out = capsys.readouterr().out
        assert [line for line in out.splitlines()[1:] if line.endswith("...")] == []

    assert run(["delegate", "--help"]) == 0
    out = capsys.readouterr().out
    headings = re.findall(r"^([A-Z][A-Za-z ]+):$", out, flags=re.MULTILINE)
    assert headings == ["Arguments", "Lease", "What is lent", "Limits", "Going along", "Options", "Panel", "Examples"]
    assert out.startswith("Usage: sublet delegate [OPTIONS] DIR PROMPT\n")
    assert all(option in out for option in ("--staged", "--max-files", "--git", "--notify", "--json"))


def test_help_shows_names_and_no_types(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    root = get_command(app)
    for name, command in getattr(root, "commands").items():  # noqa: B009 - the type of groups is typer's secret
        for inner in getattr(command, "commands", {"": None}):
            assert run([name, *([inner] if inner else []), "--help"]) == 0
            out = capsys.readouterr().out
            assert not re.search(r"<(str|int|path)>|\[\[", out), out
            assert not re.search(r"x[<>]=|<=x|\[\]", out), out


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("How many.  [default: 20; 1<=x<=500]", "How many. [default: 20; 1 to 500]"),
        ("How many.  [x>=0]", "How many."),
        ("How many.  [0<=x<=10]", "How many. [0 to 10]"),
        ("How many.  [default: 0; x>=0]", "How many. [default: 0]"),
        ("How many.  [x<=10]", "How many."),
        ("Where x is.", "Where x is."),
    ],
)
def test_ranges_are_told_in_words(text: str, plain: str) -> None:
    assert plain_facts(text) == plain


def test_what_follows_the_options_stands_under_headings_as_they_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if line.endswith(":")]
    assert headings[-2:] == ["First steps:", "Exit statuses:"]


def test_groups_of_things_list_them_where_no_command_is_named() -> None:
    root = get_command(app)
    groups = {name: group for name, group in getattr(root, "commands").items() if hasattr(group, "commands")}  # noqa: B009
    listing = [name for name, group in groups.items() if "list" in group.commands and not group.invoke_without_command]

    assert sorted(listing) == [
        "agents",
        "capability",
        "device",
        "gateway",
        "grants",
        "office",
        "peers",
        "room",
        "sessions",
        "token",
    ]
    for name in listing:
        ctx = groups[name].make_context(name, ["--json"])
        assert (ctx._protected_args, ctx.args) == (["list"], ["--json"]), name
        ctx = groups[name].make_context(name, ["list", "--json"])
        assert (ctx._protected_args, ctx.args) == (["list"], ["--json"]), name


def test_state_tables_are_those_of_the_code() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "draw-states"), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_the_lock_names_no_place_and_hashes_everything() -> None:
    lock = page("requirements.lock")

    assert "://" not in lock
    assert not [line for line in lines(lock) if line.startswith("-") and not line.startswith("--hash=sha256:")]
    pinned = re.findall(r"^([a-z0-9._-]+)==\S+ \\$", lock, flags=re.MULTILINE)
    named = re.findall(r"^([A-Za-z0-9._-]+)", lock, flags=re.MULTILINE)
    assert pinned == named
    project = tomllib.loads(page("pyproject.toml"))
    wanted = [
        *project["project"]["dependencies"],
        *project["dependency-groups"]["dev"],
        *project["build-system"]["requires"],
        "editables",
    ]
    names = {re.match(r"[A-Za-z0-9._-]+", line)[0].lower() for line in wanted}  # type: ignore[index]
    assert names <= set(pinned), "run `make lock`"
