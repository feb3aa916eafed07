"""Pages name only commands, options, error codes, files and targets that are there, and show only files that load."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from sublet.protocol.errors import ErrorCode, LocalCode
from support.command_words import typed, wrong
from support.pages.fences import PAGES, REASONS, ROOT, SHELL, Fence, fences
from support.pages.loading import load

FENCES = [fence for page in PAGES for fence in fences(page)]
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FILE = re.compile(r"^(?:src|tests|docs|scripts|benchmarks|examples)/[\w./-]+$")
PLACES = {"docs/api", "src/a.py", "tests/golden/VERSION/"}
"""Names that stand for a place of the reader's."""
OUR_CODES = {*ErrorCode, *LocalCode}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_no_command_and_no_option_that_is_not_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    spans = "\n".join(SPAN.findall(text))
    scripts = "\n".join(fence.text for fence in fences(page) if fence.language in SHELL)
    found = [reason for words in typed(f"{spans}\n{scripts}") if (reason := wrong(words))]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_no_file_of_the_checkout_that_is_not_there(page: Path) -> None:
    named = {span for span in SPAN.findall(page.read_text(encoding="utf-8")) if FILE.match(span)}
    assert [
        name for name in sorted(named - PLACES) if not (ROOT / name).exists() and not (page.parent / name).exists()
    ] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sublet delegat . --to bob", "there is no command 'delegat'"),
        ("sublet room creat Work", "there is no command 'room creat'"),
        ("sublet delegate . --too bob", "'sublet delegate . --too bob' has no option --too"),
        ("sublet peers --json", None),
        ("sublet capability run hello -- --loud", None),
        ('sublet send ROOM "--not an option"', None),
    ],
)
def test_a_wrong_command_is_found(text: str, reason: str | None) -> None:
    assert [wrong(words) for words in typed(text)] == [reason]


def test_codes_in_pages_are_codes() -> None:
    shown = {
        f"{page.name}: {code}"
        for page in PAGES
        for code in re.findall(r"(?:ends as|fails (?:with|as)|refused as|answers) `([A-Z][A-Z_]+)`", page.read_text())
        if code not in OUR_CODES
    }
    shown |= {f"{fence}: {code}" for fence in FENCES for code in re.findall(r"  \[([A-Z_]+)\]", fence.text)} - {
        f"{fence}: {code}" for fence in FENCES for code in OUR_CODES
    }
    assert shown == set()


def test_a_note_says_what_is_done_with_each_fence_that_is_no_script_and_no_drawing() -> None:
    assert [str(fence) for fence in FENCES if not (fence.is_run or fence.is_drawing or fence.notes)] == []


def test_at_most_one_fence_in_ten_is_not_run_and_each_says_why() -> None:
    left = [fence for fence in FENCES if fence.noted("not run")]
    assert {reason.removeprefix(": ").strip(": ") for fence in left for reason in fence.noted("not run")} <= REASONS
    assert len(left) * 10 <= len([fence for fence in FENCES if not fence.is_drawing])


@pytest.mark.parametrize("fence", [fence for fence in FENCES if fence.noted("not run")], ids=str)
def test_what_is_not_run_is_there(fence: Fence) -> None:
    targets = re.findall(r"^make (\w+)", fence.text, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
    scripts = re.findall(r"python (\S+\.py)", fence.text)
    assert [script for script in scripts if not (ROOT / script).is_file()] == []
    modules = re.findall(r"python -m (\S+)", fence.text)
    assert [name for name in modules if not (ROOT / "tests" / f"{name.replace('.', '/')}.py").is_file()] == []


@pytest.mark.parametrize(
    ("fence", "kind"),
    [
        pytest.param(fence, kind, id=str(fence))
        for fence in FENCES
        for kind in (*fence.noted("loads as"), *fence.noted("in force as"))
    ],
)
def test_what_a_page_shows_of_a_file_loads(fence: Fence, kind: str, tmp_path: Path) -> None:
    load(kind, fence.text, tmp_path)


@pytest.mark.parametrize("fence", [fence for fence in FENCES if fence.noted("excerpt of")], ids=str)
def test_an_excerpt_stands_in_its_file(fence: Fence) -> None:
    (name,) = fence.noted("excerpt of")
    text = fence.text.removeprefix(f"# {name}\n")
    assert text in (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("fence", [fence for fence in FENCES if "sketch" in fence.notes], ids=str)
def test_a_sketch_is_code(fence: Fence) -> None:
    compile(fence.text, str(fence), "exec")


@pytest.mark.parametrize("fence", [fence for fence in FENCES if "unit" in fence.notes], ids=str)
def test_a_unit_is_one_that_systemd_takes(fence: Fence, tmp_path: Path) -> None:
    unit = tmp_path / "sublet.service"
    unit.write_text(fence.text.replace("%h/.local/bin/sublet", "/bin/true"))
    try:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("there is no systemd here")
    assert [line for line in done.stderr.splitlines() if "sublet.service" in line] == []
