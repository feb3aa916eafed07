"""What real agents call their tools is one of ours, and what denies finds a tool under every qualifier."""

from __future__ import annotations

import pytest

from sublet.policy import tool_names
from sublet.policy.tool_names import (
    MAX_PARTS,
    is_known,
    tool_defect,
    tool_exacts,
    tool_pattern,
    tool_plain,
    tool_skeletons,
)

CALLED = {
    "file.read": ("Read NotebookRead read_many_files read_file readFile fs/read_text_file open_file view_file cat"),
    "file.write": "Write write_file WriteFile write_text_file fs/write_text_file create_file",
    "file.edit": "Edit edit_file EditFile MultiEdit multi_edit apply_patch patch str_replace NotebookEdit",
    "file.list": "LS list_dir list_directory list_files listDir dir",
    "file.search": "Grep Glob search search_files search_file_content ripgrep find",
    "file.move": "mv move move_file rename rename_file moveFile",
    "file.delete": "rm delete delete_file remove_file unlink deleteFile rmdir",
    "shell.exec": (
        "Bash BashOutput KillBash KillShell zsh shell exec sh run_shell_command run_command execute_command "
        "exec_command shell_command shell_run terminal terminal/create terminal-run local_shell run_terminal_cmd "
        "execute command"
    ),
    "network.fetch": (
        "fetch web_fetch WebFetch WebSearch web_search google_web_search url_fetch http_get curl wget browse"
    ),
}
"""By our name, what programs call it."""


@pytest.mark.parametrize(("ours", "called"), [(ours, one) for ours, names in CALLED.items() for one in names.split()])
def test_a_tool_has_one_name_whatever_a_program_calls_it(ours: str, called: str) -> None:
    for spelling in (called, called.upper(), called.replace("_", "-"), called.replace("_", " "), f"/{called}"):
        assert tool_plain(spelling) == ours
    for before in ("functions.", "default_api.", "tools.", "tool.", "acp."):
        assert tool_plain(before + called) == ours
    assert ours in tool_skeletons(f"mcp__anything__{called}")
    assert is_known(called)


@pytest.mark.parametrize(
    ("name", "plain", "skeletons"),
    [
        ("Read", "file.read", ("file.read",)),
        ("mcp__a__file_delete", "mcp.a.file.delete", ("mcp.a.file.delete", "a.file.delete", "file.delete")),
        ("mcp__x__Bash", "mcp.x.bash", ("mcp.x.bash", "x.bash", "shell.exec")),
        ("acp.my_tool", "my.tool", ("my.tool", "acp.my.tool")),
        ("acp.bash", "shell.exec", ("shell.exec", "acp.bash")),
        ("sublet_delegate", "sublet.delegate", ("sublet.delegate",)),
        ("a.b.c.d", "a.b.c.d", ("a.b.c.d", "b.c.d", "c.d")),
        ("__a..b//c:d-", "a.b.c.d", ("a.b.c.d", "b.c.d", "c.d")),
        ("b\u0430sh", "b\u0430sh", ("shell.exec",)),
        ("unknown", "unknown", ("unknown",)),
        ("Xtool/", "xtool", ("xtool",)),
        ("//Xtool", "xtool", ("xtool",)),
    ],
)  # fmt: skip
def test_forms_that_are_compared(name: str, plain: str, skeletons: tuple[str, ...]) -> None:
    assert tool_plain(name) == plain
    assert tool_skeletons(name) == tuple(dict.fromkeys(skeletons))


def test_an_allow_compares_a_programs_own_tool_with_and_without_its_provider() -> None:
    assert tool_exacts("acp.my_tool") == ("my.tool", "acp.my.tool")
    assert tool_exacts("Read") == ("file.read",)
    assert tool_exacts("/Read") == ("file.read",)
    assert tool_exacts("Xtool") == ("xtool",)


def test_the_endings_of_a_long_name_are_bounded() -> None:
    parts = [f"p{number}" for number in range(40)]
    found = tool_skeletons(".".join(parts))
    assert found[0] == ".".join(parts)
    assert found[1:] == tuple(".".join(parts[-kept:]) for kept in range(MAX_PARTS, 1, -1))
    assert MAX_PARTS == 16


@pytest.mark.parametrize(
    ("pattern", "exact", "form"),
    [
        ("Bash", True, "shell.exec"),
        ("b\u0430sh", True, "b\u0430sh"),
        ("b\u0430sh", False, "shell.exec"),
        ("/file.*", True, "file.*"),
        ("acp.my_tool", True, "my.tool"),
        ("acp.*", True, "acp.*"),
        ("acp.?x", False, "acp.?x"),
        ("mcp__*", False, "mcp.*"),
        ("X*", True, "x*"),
        (" x", True, "x"),
        ("x/", True, "x"),
        ("/x", False, "x"),
        ("/X", False, "x"),
        ("/X", True, "x"),
    ],
)
def test_patterns_are_in_the_form_that_is_compared(pattern: str, exact: bool, form: str) -> None:
    assert tool_pattern(pattern, exact=exact) == form


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("*", ""),
        ("file.*", ""),
        ("f*", ""),
        ("Bash", ""),
        ("mcp.*", ""),
        ("mcp.files.anything", ""),
        ("sublet.*", ""),
        ("sublet.delegate", ""),
        ("sublet.wat*", ""),
        ("my-tool 2", ""),
        ("X", ""),
        ("X*", ""),
        ("/X", ""),
        ("/*", ""),
        ("*/", "it would be every tool"),
        ("file", "write file.*"),
        ("shell", ""),
        ("network", "write network.*"),
        ("sublet", "write sublet.*"),
        ("agent", "write agent.*"),
        ("mcp", "write mcp.*"),
        ("capability", "write capability.*"),
        ("module", "write module.*"),
        ("**", "names no tool"),
        ("*.*", "names no tool"),
        ("?", "names no tool"),
        ("-*-", "it would be every tool"),
        ("file.craete", "there are file.delete, file.edit, file.list, file.move, file.read, file.search, file.write"),
        ("sublet.x", "there are sublet.ask.human"),
        ("rm -rf $x", "what a tool is called with is a condition"),
        ("a(b)", "is a condition"),
        ("\u0444", "is a condition"),
    ],
)
def test_a_pattern_that_finds_no_tool_says_why(pattern: str, said: str) -> None:
    assert said in (found := tool_defect(pattern))
    assert bool(found) == bool(said)


def test_tools_that_change_and_tools_that_look_are_told_apart() -> None:
    assert tool_names.READING_TOOLS.isdisjoint(tool_names.WRITING_TOOLS)
    assert {f"file.{what}" for what in ("write", "edit", "move", "delete")} == tool_names.WRITING_TOOLS
    assert {f"file.{what}" for what in ("read", "list", "search")} == tool_names.READING_TOOLS
    assert {"sublet.delegate.output", "sublet.directory", "sublet.watch"} == (
        tool_names.LOOKING_TOOLS - tool_names.READING_TOOLS
    )
    assert {"file.search", "file.move"} == tool_names.TREE_TOOLS
    ours = (
        "shell.exec network.fetch sublet.ask_human sublet.change_message sublet.delegate sublet.delegate_cancel "
        "sublet.delegate_output sublet.delegate_review sublet.directory sublet.people sublet.read_messages "
        "sublet.send_message sublet.watch"
    )
    for name in (*ours.split(), *tool_names.READING_TOOLS, *tool_names.WRITING_TOOLS):
        assert is_known(name), name
    assert not is_known("sublet.nothing")
