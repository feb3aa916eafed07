"""Names of tools: one tool under many names is one tool (SuperAgent 6.2, DESIGN 7)."""

from __future__ import annotations

from typing import Final

from sublet.policy.globs import matcher
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
_OURS: Final = frozenset(
    {
        *READING_TOOLS,
        *WRITING_TOOLS,
        "shell.exec",
        "network.fetch",
        "sublet.ask.human",
        "sublet.change.message",
        "sublet.delegate",
        "sublet.delegate.cancel",
        "sublet.delegate.output",
        "sublet.delegate.review",
        "sublet.directory",
        "sublet.people",
        "sublet.read.messages",
        "sublet.send.message",
        "sublet.watch",
    }
)
"""All tools of the families in which nobody else has any."""
_CLOSED: Final = frozenset(name.partition(".")[0] for name in _OURS)
FAMILIES: Final = frozenset({"file", "shell", "network", "mcp", "capability", "agent", "module"})
"""First parts of tool names; in ``agent.json``, a family alone means all of its tools."""

_WRAPPERS: Final = ("functions.", "default.api.", "tools.", "tool.")
"""What chat models put before a name; it names no other tool."""

_PROVIDERS: Final = ("acp.",)
"""Before names that an agent's own program gave its tools; what follows is the name."""

_ALIASES: Final = {
    alias: name
    for name, aliases in {
        "file.read": (
            "read notebookread read.many.files read.file readfile read.text.file fs.read.text.file open.file view.file "
            "cat"
        ),
        "file.write": "write write.file writefile write.text.file fs.write.text.file create.file",
        "file.edit": "edit edit.file editfile multiedit multi.edit apply.patch patch str.replace notebookedit",
        "file.list": "ls list.dir list.directory list.files listdir dir",
        "file.search": "grep glob search search.files search.file.content ripgrep find",
        "file.move": "mv move move.file rename rename.file movefile",
        "file.delete": "rm delete delete.file remove.file unlink deletefile rmdir",
        "shell.exec": (
            "bash bashoutput killbash killshell zsh shell exec sh run.shell.command run.command execute.command "
            "exec.command shell.command shell.run terminal terminal.create terminal.run local.shell run.terminal.cmd "
            "execute command"
        ),
        "network.fetch": (
            "fetch web.fetch webfetch websearch web.search google.web.search url.fetch http.get curl wget browse"
        ),
    }.items()
    for alias in aliases.split()
}
"""Names that agents use for our tools, in the form with dots."""

MAX_PARTS: Final = 16
"""Of how many parts the longest ending of a name has that counts as a name of its own."""

_NEVER_IN_A_NAME = Pattern(rf"[^a-z0-9{SPACE}._:/\\*?-]")
_SEPARATORS = Pattern(rf"[{SPACE}._:/\\-]+")


def tool_plain(name: str) -> str:
    """Return the canonical name: parts in lower case with dots between them, known aliases replaced."""
    return _own(_tool(plain(name.lstrip("/"))))


def tool_exacts(name: str) -> tuple[str, ...]:
    """Return the forms that allows compare: the canonical name, and for a program's own tool that with ``acp.``."""
    whole, own = _tool(plain(name.lstrip("/"))), tool_plain(name)
    return (own,) if whole == own else (own, whole)


@remembered
def tool_skeletons(name: str) -> tuple[str, ...]:
    """Return the forms that denies compare: the name, and what follows each qualifier before it.

    ``mcp__files__file_delete`` is also ``files.file.delete`` and ``file.delete``.
    """
    dotted = _SEPARATORS.sub(".", skeleton(name.lstrip("/"))).strip(".")
    whole = _tool(dotted)
    forms = list(dict.fromkeys((_own(whole), whole)))
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


def _own(name: str) -> str:
    """Return a canonical name without the provider before it."""
    for provider in _PROVIDERS:
        if name.startswith(provider) and not name.removeprefix(provider).startswith(("*", "?")):
            return _tool(name.removeprefix(provider))
    return name


def is_known(name: str) -> bool:
    """Tell whether ``name`` is one of our tools, by whatever alias."""
    return tool_plain(name) in _OURS


def tool_pattern(pattern: str, *, exact: bool) -> str:
    """Return a glob over tool names in the form that allows (``exact``) or denies compare."""
    return _own(_tool((plain if exact else skeleton)(pattern.lstrip("/"))))


def capability_pattern(pattern: str, *, exact: bool) -> str:
    """Return the pattern over ids of capabilities that a glob over tool names has behind its family, or nothing."""
    bare = pattern.lstrip("/")
    between = _SEPARATORS.search(bare)
    if between is None or (plain if exact else skeleton)(bare[: between.start()]) != "capability":
        return ""
    return bare[between.end() :]


def tool_defect(pattern: str) -> str:
    """Return why a pattern over tool names can match no tool, or would match far more than it says; or nothing."""
    bare = skeleton(pattern.lstrip("/"))
    if _NEVER_IN_A_NAME.search(bare) is not None:
        return "names of tools have letters, digits, '.', '_' and '-'; what a tool is called with is a condition"
    form = _tool(bare)
    if not form.strip("*.?") and form != "*":
        return "it names no tool"
    if form == "*" and bare != "*":
        return "it would be every tool; write '*' for that"
    if form in FAMILIES | _CLOSED and form not in _OURS:
        return f"no tool has this name; for all of the family write {form}.*"
    family = form.partition(".")[0]
    if family in _CLOSED and "." in form and not any(map(matcher(form), _OURS)):
        return (
            f"there is no such tool; there are {', '.join(sorted(name for name in _OURS if name.startswith(family)))}"
        )
    return ""
