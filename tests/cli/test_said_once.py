"""What an agent prints is shown once: its last words are not said again where they stand above."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import pytest

from sublet.cli.app import run
from sublet.cli.rendering.live import MAX_SEEN_CHARS, OutputLines
from sublet.daemon.api.delegation_views import ResultView
from support.fake_control import ID, FakeControl, completed, delegation, printed

WORDS = "first line\nAll tests pass now."
FOLLOWING = [["output", ID, "--follow"], ["attach", ID], ["delegate", ".", "Do it.", "--to", "bob"]]


def over(words: str = WORDS, **result: object) -> FakeControl:
    """Return a daemon with a delegation that has printed ``WORDS``, and said ``words`` at its end."""
    daemon = control(words, **result)
    daemon.views.popleft()
    return daemon


def control(words: str = WORDS, **result: object) -> FakeControl:
    """Return a daemon with a delegation that printed ``WORDS``, and says ``words`` at its end."""
    ended = completed(result=ResultView.model_validate({"final_summary": words, **result}))
    return FakeControl(views=deque([delegation(), ended]), events=[printed(1, WORDS + "\n")])


def in_one_file(tmp_path: Path, argv: Sequence[str], daemon: FakeControl) -> str:
    """Run a command of which stdout and stderr are one file, as in a terminal or with ``2>&1``."""
    file = tmp_path / "both"
    pid = os.fork()
    if pid == 0:
        try:
            with file.open("w", encoding="utf-8") as both, pytest.MonkeyPatch.context() as patch:
                patch.setattr("sys.stdout", both)
                patch.setattr("sys.stderr", os.fdopen(os.dup(both.fileno()), "w", encoding="utf-8", buffering=1))
                run(argv, session=daemon.session())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return file.read_text(encoding="utf-8")


def test_output_says_it_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["output", ID], session=over().session()) == 0
    out = capsys.readouterr().out
    assert out.count("All tests pass now.") == 1
    assert "bob says what stands above (its own words, not checked)" in out


@pytest.mark.parametrize(
    "argv", [["output", ID, "--follow"], ["attach", ID], ["delegate", ".", "Do it.", "--to", "bob"]]
)
def test_who_follows_reads_it_once(tmp_path: Path, argv: list[str]) -> None:
    read = in_one_file(tmp_path, argv, control())
    assert read.count("All tests pass now.") == 1
    assert "bob │ All tests pass now." in read.splitlines()


@pytest.mark.parametrize(
    "argv", [["output", ID, "--follow"], ["attach", ID], ["delegate", ".", "Do it.", "--to", "bob"]]
)
def test_who_reads_stdout_alone_has_the_words(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    run(argv, session=control().session())
    assert capsys.readouterr().out.count("All tests pass now.") == 1


def test_other_words_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    daemon = over("first line\nI have mended two tests.", notes="And one is left.")
    assert run(["output", ID], session=daemon.session()) == 0
    out = capsys.readouterr().out
    assert "I have mended two tests." in out
    assert "And one is left." in out


def test_notes_are_said_though_the_words_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["output", ID], session=over(notes="One is left.").session()) == 0
    out = capsys.readouterr().out
    assert out.count("All tests pass now.") == 1
    assert "One is left." in out
    assert "(nothing)" not in out


@pytest.mark.parametrize(
    ("words", "known"),
    [("b\nc", True), ("ine a\nb", True), ("b\n\n  c ", True), ("", True), ("ine b", False), ("a\nx", False)],
)
def test_words_are_known_by_their_lines(words: str, known: bool) -> None:
    lines = OutputLines()
    lines.feed(printed(1, "line a\nb\nc"))
    lines.rest()
    assert lines.has_all_of(words) is known


def test_of_a_long_output_the_end_alone_is_remembered() -> None:
    lines = OutputLines()
    lines.feed(printed(1, "first\n"))
    for number in range(MAX_SEEN_CHARS // 100 + 2):
        lines.feed(printed(2 + number, "x" * 99 + "\n"))
    assert not lines.has_all_of("first")
    assert lines.has_all_of("x" * 99)
