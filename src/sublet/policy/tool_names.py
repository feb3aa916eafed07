"""Names of tools: one tool under many names is one tool (SuperAgent 6.2, DESIGN 7)."""

from __future__ import annotations

from typing import Final

from sublet.policy.names import plain, remembered, skeleton
from sublet.protocol.patterns import SPACE, Pattern

WRITING_TOOLS: Final = frozenset({"file.write", "file.edit", "file.move", "file.delete"})
"""Those that change files by themselves; a read-only lease has none of them."""
READING_TOOLS: Final = frozenset({"file.read", "file.list", "file.search"})
"""Those that change nothing anywhere."""
LOOKING_TOOLS: Final = READING_TOOLS | {"sublet.delegate.output", "sublet.directory", "sublet.watch"}
"""Those, and tools for MCP hosts that only tell."""
TREE_TOOLS: Final = frozenset({"file.search", "file.move"})
"""Those that reach all that lies below the paths that they name."""
FAMILIES: Final = frozenset({"file", "shell", "network", "mcp", "capability", "agent", "module"})
"""First parts of tool names; in ``agent.json``, a family alone means all of its tools."""

_WRAPPERS: Final = ("functions.", "default.api.", "tools.", "tool.")
"""What chat models put before a name; it names no other tool."""

_ALIASES: Final = {
    alias: name
    for name, aliases in {
        "file.read": "read read.file readfile read.text.file fs.read.text.file open.file view.file cat",
        "file.write": "write write.file writefile write.text.file fs.write.text.file create.file",
        "file.edit": "edit edit.file editfile multiedit multi.edit apply.patch patch str.replace notebookedit",
        "file.list": "ls list.dir list.directory list.files listdir dir",
        "file.search": "grep glob search search.files search.file.content ripgrep find",
        "file.move": "mv move.file rename rename.file movefile",
        "file.delete": "rm delete.file remove.file unlink deletefile rmdir",
        "shell.exec": (
            "bash shell exec sh run.shell.command run.command execute.command exec.command shell.command shell.run "
            "terminal terminal.create terminal.run local.shell run.terminal.cmd execute command"
        ),
        "network.fetch": "fetch web.fetch webfetch url.fetch http.get curl wget browse",
    }.items()
    for alias in aliases.split()
}
"""Names that agents use for our tools, in the form with dots."""

MAX_PARTS: Final = 16
"""Of how many parts the longest ending of a name has that counts as a name of its own."""

_SEPARATORS = Pattern(rf"[{SPACE}._:/\\-]+")


def tool_plain(name: str) -> str:
    """Return the form that allows compare: parts in lower case with dots between them, known aliases replaced."""
    return _tool(plain(name.lstrip("/")))


@remembered
def tool_skeletons(name: str) -> tuple[str, ...]:
    """Return the forms that denies compare: the name, and what follows each qualifier before it.

    ``mcp__files__file_delete`` is also ``files.file.delete`` and ``file.delete``.
    """
    dotted = _SEPARATORS.sub(".", skeleton(name.lstrip("/"))).strip(".")
    forms = [_tool(dotted)]
    parts = dotted.split(".")
    for kept in range(min(len(parts) - 1, MAX_PARTS), 1, -1):
        form = _tool(".".join(parts[-kept:]))
        if form not in forms:
            forms.append(form)
    if len(parts) > 1 and (alias := _ALIASES.get(parts[-1])) and alias not in forms:
        forms.append(alias)
    return tuple(forms)


@remembered
def _tool(name: str) -> str:
    dotted = _SEPARATORS.sub(".", name).strip(".")
    for wrapper in _WRAPPERS:
        dotted = dotted.removeprefix(wrapper)
    return _ALIASES.get(dotted, dotted)


def tool_pattern(pattern: str, *, exact: bool) -> str:
    """Return a glob over tool names in the form that allows (``exact``) or denies compare."""
    return _tool((plain if exact else skeleton)(pattern.lstrip("/")))
