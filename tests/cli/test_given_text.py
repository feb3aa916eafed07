"""D09: text that is not UTF-8 is refused in words that say so, in every command that reads a text or a name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.daemons import SUBLET

NOT_UTF8 = b"caf\xe9"
STDIN = "on stdin is not text in UTF-8: byte 0xe9 in it begins no character"


def run(tmp_path: Path, *arguments: str | bytes, stdin: bytes = b"", lang: str = "C.UTF-8") -> tuple[int, str]:
    done = subprocess.run(
        [str(SUBLET), *arguments],
        env={"PATH": os.environ["PATH"], "SUBLET_HOME": str(tmp_path / "home"), "LANG": lang, "LC_ALL": lang},
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize("lang", ["C.UTF-8", "POSIX"])
@pytest.mark.parametrize(
    "command",
    [
        ["delegate", ".", "--to", "bob", "-"],
        ["say", "dlg_1", "-"],
        ["ask", "-"],
        ["send", "Work", "-"],
        ["edit", "Work", "ref", "-"],
        ["text", "edit", "Work", "ref", "-"],
        ["drafts", "Work", "-"],
        ["profile", "--text", "-"],
        ["capability", "run", "build", "--stdin"],
        ["peers", "add", "-", "--name", "bob"],
    ],
    ids=lambda command: " ".join(command),
)
def test_what_comes_on_stdin(tmp_path: Path, command: list[str], lang: str) -> None:
    status, told = run(tmp_path, *command, stdin=b"a " + NOT_UTF8 + b" b", lang=lang)
    assert status == 2
    assert STDIN in told


@pytest.mark.parametrize(
    "command",
    [
        ["attach", NOT_UTF8],
        ["send", "Work", NOT_UTF8],
        ["send", NOT_UTF8, "hello"],
        ["delegate", ".", "--to", "bob", NOT_UTF8],
        ["delegate", ".", "--to", NOT_UTF8, "work"],
        ["delegate", ".", "--to", "bob", "work", b"--include=" + NOT_UTF8],
        ["ask", NOT_UTF8],
        ["peers", "add", "link", "--name", NOT_UTF8],
        ["room", "create", NOT_UTF8],
        ["policy", "explain", "--subject", NOT_UTF8],
        [NOT_UTF8],
    ],
    ids=lambda command: repr(command),
)
def test_arguments_and_names(tmp_path: Path, command: list[str | bytes]) -> None:
    status, told = run(tmp_path, *command)
    assert status == 2
    assert "an argument is not UTF-8, and no file here has that name: " in told
    assert "caf\\xe9" in told


def test_a_file_by_that_name(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/" + NOT_UTF8
    Path(os.fsdecode(name)).write_text("content")
    os.mkdir(name + b".d")
    assert "No such file" not in run(tmp_path, "send", "Work", "look", "--attach", name)[1]
    assert "the path is not UTF-8" in run(tmp_path, "delegate", name + b".d", "--to", "bob", "work")[1]


def test_line_ends_and_bounds_of_a_good_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from sublet.cli.options.given_text import text_of

    read, write = os.pipe()
    os.write(write, "é\r\nb\rc".encode())
    os.close(write)
    with open(read, encoding="ascii", errors="surrogateescape") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert text_of("-", 3, "it") == "é\nb\n"
    assert text_of("given", 3, "it") == "given"
    monkeypatch.setattr("sys.stdin", None)
    assert text_of("-", 3, "it") == ""
