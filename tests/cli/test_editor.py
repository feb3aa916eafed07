"""What a person's own editor makes of a text."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.cli.options.editor import edit_in_editor
from sublet.protocol.errors import SubletError


def editor(tmp_path: Path, script: str) -> dict[str, str]:
    """Return the environment of somebody whose editor is a script, with the file as ``$1``."""
    program = tmp_path / "an editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    return {"EDITOR": f"'{program}'"}


@pytest.mark.parametrize("text", ["one\ntwo", "one\ntwo\n", ""])
def test_what_was_not_touched_is_as_it_was(tmp_path: Path, text: str) -> None:
    edited = edit_in_editor(text, editor(tmp_path, "true"))
    assert edited.text == text
    edited.file.unlink()


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    edited = edit_in_editor("one", editor(tmp_path, 'echo two >> "$1"'))
    assert edited.text == "one\ntwo"
    edited.file.unlink()


@pytest.mark.parametrize(("script", "words"), [("exit 1", "failed"), ("printf '\\377' > \"$1\"", "UTF-8")])
def test_an_editor_that_fails_changes_nothing(tmp_path: Path, script: str, words: str) -> None:
    with pytest.raises(SubletError, match=words):
        edit_in_editor("one", editor(tmp_path, script))


def test_no_editor_is_said(tmp_path: Path) -> None:
    with pytest.raises(SubletError, match="can't be started"):
        edit_in_editor("one", {"VISUAL": str(tmp_path / "none")})
