"""What programs print of themselves on their standard error is left out, and nothing else is."""

from __future__ import annotations

import pytest

from sublet.supervisor import program_noise
from sublet.supervisor.presets import ACP_PRESETS, PRESETS
from sublet.supervisor.program_noise import NOISE, quiet_errors

SEEN: dict[str, list[str]] = {
    "gemini": [
        "(node:31128) [DEP0040] DeprecationWarning: The `punycode` module is deprecated. Please use a userland "
        "alternative instead.",
        "(Use `node --trace-deprecation ...` to show where the warning was created)",
        "(node:7) ExperimentalWarning: SQLite is an experimental feature and might change at any time",
        "YOLO mode is enabled. All tool calls will be automatically approved.",
        "Loaded cached credentials.",
        "Warning: 256-color support not detected. Using a terminal with at least 256-color support is recommended for "
        "a better visual experience.",
        "Ripgrep is not available. Falling back to GrepTool.",
        "[STARTUP] Phase 'cli_startup' was started but never ended. Skipping metrics.",
    ],
    "codex": ["Reading prompt from stdin...", "Reading additional input from stdin..."],
}
REASONS = [
    "Error: ENOENT: no such file or directory, open '/w/a'",
    "(node:7) Error: something else",
    "The agent said: Loaded cached credentials. And more.",
    "",
    "    at node:internal/process",
]


def quiet(program: str, text: str, size: int = 1 << 20) -> str:
    data, errors = text.encode(), quiet_errors(program)(lambda _: None)
    told = b"".join(errors.feed(data[at : at + size]) for at in range(0, len(data), size))
    return (told + errors.feed(b"", final=True)).decode()


@pytest.mark.parametrize("size", [1, 13, 1 << 20])
@pytest.mark.parametrize("program", SEEN)
def test_noise_is_left_out_and_reasons_stay(program: str, size: int) -> None:
    lines = [line for pair in zip(SEEN[program], REASONS, strict=False) for line in pair]
    text = "\n".join([*lines, *SEEN[program], *REASONS])
    kept = "\n".join(line for line in text.split("\n") if line not in SEEN[program])
    assert quiet(program, text, size) == kept


def test_each_row_is_seen_by_a_line() -> None:
    lines = [line for lines in SEEN.values() for line in lines]
    assert [row.line for row in NOISE if not any(row.line.match(line) for line in lines)] == []


def test_the_noise_of_one_is_the_word_of_another() -> None:
    assert quiet("codex", "Loaded cached credentials.\n") == "Loaded cached credentials.\n"
    assert quiet("gemini", "Loaded cached credentials.") == ""


def test_each_row_is_of_a_preset_and_has_a_source() -> None:
    assert {row.program for row in NOISE} <= {"node", *PRESETS, *ACP_PRESETS}
    assert all(len(row.source) > 10 for row in NOISE)


def test_a_line_that_does_not_end_is_told_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_noise, "MAX_LINE_BYTES", 10)
    errors = quiet_errors("gemini")(lambda _: None)
    assert errors.feed(b"x" * 11) == b"x" * 11
    assert errors.feed(b"y") == b""
    assert errors.feed(b"", final=True) == b"y"
