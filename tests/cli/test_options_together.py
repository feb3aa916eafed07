"""No option is taken that changes nothing: neither alone, nor beside any other option of its command.

Each command is typed with each option and with each pair of options, for a daemon that answers anything. What it asks
then, what it prints, or what it refuses has to be another than without the option.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from sublet.cli.app import run
from support.command_words import command
from support.made_answers import DELEGATION, REF, ROOM, SESSION, AskedControl
from support.pictures import png

ALICE: Final = "@human:node-aaaaaaaaaaaaaaaa"
ELSEWHERE: Final = frozenset(
    {
        "up", "down", "demo", "doctor", "mcp", "mcp install", "mcp uninstall", "chat", "config", "config show",
        "approvals approve", "approver init", "approver change", "approver remove", "grants create", "agents add",
        "office serve-tools", "policy lint", "policy test", "replay", "text edit",
    }
)  # fmt: skip
"""Commands that start something, ask for a passphrase, or write files of this user."""
ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "delegate": ("{dir}", "Make it."),
    "attach": (DELEGATION,),
    "say": (DELEGATION, "And more."),
    "extend": (DELEGATION,),
    "search": ("word",),
    "watch set": (ROOM,),
    "profile": (),
    "read": (ROOM,),
    "thread": (ROOM, REF),
    "react": (ROOM, REF, "+1"),
    "room create": ("name",),
    "room list": (),
    "sessions list": (),
    "sessions create": ("title",),
    "ask": (),
    "answer": (SESSION, "yes"),
    "drafts": (),
    "capability run": ("hello",),
    "gateway send": ("chat", "words"),
    "token create": ("name",),
    "peers add": ("sublet:x",),
    "peers rename": ("bob", "rob"),
}
"""Of commands whose arguments do not go by their names alone."""
VALUES: Final[Mapping[str, str]] = {
    "ROOM": ROOM, "REF": REF, "ENTITY": "@human:node-aaaaaaaaaaaaaaaa", "ID": DELEGATION, "DIR": "{dir}",
    "FILE": "{file}", "NAME": "name", "TEXT": "words", "PROMPT": "words", "WORD": "word", "SESSION": SESSION,
    "KEY": "key", "LINK": "sublet:x", "MESSAGE": "words", "NEW": "rob", "EMOJI": "+1", "TITLE": "title",
}  # fmt: skip
OPTIONS: Final[Mapping[str, str]] = {
    "--to": "bob", "--ttl": "5m", "--transport": "archive", "--git": "ro",
    "--include": "src", "--exclude": "build", "--reveal": ".env", "--unlock": "Makefile", "--require-sandbox": "memory",
    "--result-branch": "work", "--deny": "file.write", "--only": "file.*", "--writable": "src", "--description": "a",
    "--max-total-bytes": "10M", "--max-file-bytes": "1M", "--policy": "open", "--thread": REF, "--channel": "news",
    "--format": "markdown", "--reply-to": REF, "--reply-room": "0190aaaa-0000-7000-8000-000000000001",
    "--before": REF, "--attach": "{file}", "--picture": "{picture}", "--save-picture": "{new}", "--output": "{new}",
    "--patch": "{new}", "--set": "city=Rome", "--name": "name", "--enable": "moderation", "--disable": "reactions",
    "--level": "events_default=5", "--power": f"{ALICE}=5", "--role": f"{ALICE}=admin", "--until": "read",
    "--with": ALICE,
    "--without": "@human:node-bbbbbbbbbbbbbbbb", "--schema": "{schema}", "--mask": "/a", "--on-failure": "reject",
    "--session": SESSION, "--agent": "coder", "--answer": "yes", "--delegation": DELEGATION, "--kind": "tool_call",
    "--attribute": "access_mode=ro", "--args": '{"path": "a"}', "--at": "2026-12-24T08:00:00Z", "--entry": "5",
    "--file": "{policy}", "--branch": "work", "--older-than": "7d", "--max-bytes": "5M", "--id": "key",
    "--dir": "{dir}", "--get": REF, "--subject": "coder", "--action": "tool.call", "--resource": "{resource}",
    "--room": ROOM,
}  # fmt: skip
"""Values that are not those of their metavar."""
SHOWN: Final[Mapping[str, frozenset[str]]] = {
    "allow": frozenset({"--list"}),  # says what happens without DIR
    "attach": frozenset({"--lines", "--output"}),  # of a log and a file, which are not made here
    "events": frozenset({"--json"}),  # of events, which are not made here
    "delegate": frozenset({"--notify"}),  # on a desktop or a terminal
    "device add": frozenset({"--yes"}),  # asks about a link that can be read alone
}
"""Options whose effect is not seen here."""
OF_A_QUESTION: Final = ("--role", "--attribute", "--args", "--at", "--deny", "--only", "--granted")
SAME: Final[Mapping[tuple[str, frozenset[str]], str]] = {
    ("delegate", frozenset({"--staged", "--result-branch"})): "a branch is made of what is staged",
    ("delegate", frozenset({"--staged", "--panel"})): "what members of a panel do is staged, and one may say so",
    **{
        ("policy explain", frozenset({one, "--file"})): "the rules of the file of this test don't look at it"
        for one in OF_A_QUESTION
    },
}
"""By command, options that change nothing beside each other, with the reason why they are taken all the same."""


@dataclass(frozen=True)
class Typed:
    """What came of a command."""

    status: int
    asked: tuple[str, ...]
    out: str
    err: str

    @property
    def refused(self) -> bool:
        return self.status == 2


def leaves(known: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield each command that has none below it."""
    below = getattr(known, "commands", None)
    if below is None:
        yield " ".join(words), known
        return
    for name in below:
        yield from leaves(below[name], (*words, name))


LEAVES: Final = {name: one for name, one in leaves(command()) if name not in ELSEWHERE}


def options(one: Any) -> list[tuple[str, ...]]:
    """Return each option of a command as it is typed, with a value that is not its default."""
    found: list[tuple[str, ...]] = []
    for parameter in one.params:
        if parameter.param_type_name != "option" or "--help" in parameter.opts:
            continue
        name = next(opt for opt in parameter.opts if opt.startswith("--"))
        if parameter.is_flag:
            found.append((parameter.secondary_opts[0] if parameter.default is True else name,))
        else:
            metavar = (parameter.metavar or "").strip("[]")
            found.append((name, OPTIONS.get(name) or VALUES.get(metavar) or "7"))
    return found


def arguments(name: str, one: Any) -> tuple[str, ...]:
    """Return what a command needs."""
    if name in ARGUMENTS:
        return ARGUMENTS[name]
    if name.startswith("sessions "):
        return (SESSION,)
    needed = [parameter for parameter in one.params if parameter.param_type_name == "argument" and parameter.required]
    return tuple(VALUES.get((parameter.metavar or "").strip("[]."), "words") for parameter in needed)


@dataclass
class Bench:
    """Types commands, each time in the same surroundings."""

    folder: Path

    def typed(self, name: str, one: Any, *given: tuple[str, ...]) -> Typed:
        for left in (self.folder / "new").glob("*"):
            left.unlink()
        places = {"dir": "dir", "file": "file.txt", "picture": "p.png", "schema": "s.json", "policy": "policy.json"}
        resource = f"docs={self.folder}/dir:ro" if name == "delegate" else "file.read"
        filled = {key: str(self.folder / place) for key, place in places.items()} | {
            "new": f"{self.folder}/new/one",
            "resource": resource,
        }

        def fill(word: str) -> str:
            for key, value in filled.items():
                word = word.replace(f"{{{key}}}", value)
            return word

        words = [*name.split(), *arguments(name, one), *(word for option in given for word in option)]
        needs = [option for option in options(one) if option[0] in NEEDED.get(name, ()) and option not in given]
        words += [word for option in needs for word in option]
        control, out, err = AskedControl(), io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err), patch("sys.stdin", io.StringIO("words")):
            status = run([fill(word) for word in words], session=control.session())
        made = sorted(path.read_bytes() for path in (self.folder / "new").glob("*"))
        return Typed(status, tuple(control.asked), f"{out.getvalue()}{made}", err.getvalue())


NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "delegate": ("--to",),
    "extend": ("--ttl",),
    "peers add": ("--name",),
    "policy explain": ("--subject", "--action", "--resource"),
}
"""Options without which a command says nothing."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("bench")
    (folder / "dir").mkdir()
    (folder / "new").mkdir()
    (folder / "file.txt").write_text("words")
    (folder / "p.png").write_bytes(png())
    (folder / "s.json").write_text(json.dumps({"type": "object"}))
    (folder / "policy.json").write_text(json.dumps({"version": 1}))
    return Bench(folder)


@pytest.mark.parametrize("name", LEAVES)
def test_each_option_changes_something_beside_each_other(bench: Bench, name: str) -> None:
    one = LEAVES[name]
    given = [option for option in options(one) if option[0] not in NEEDED.get(name, ())]
    alone = {option: bench.typed(name, one, option) for option in given}
    bare = bench.typed(name, one)
    idle = [option[0] for option, came in alone.items() if came == bare and not came.refused]
    for first, second in itertools.combinations(given, 2):
        both = bench.typed(name, one, first, second)
        if both.refused or (name, frozenset({first[0], second[0]})) in SAME:
            continue
        idle += [
            f"{second[0] if without is first else first[0]} beside {without[0]}"
            for without in (first, second)
            if both == alone[without]
        ]
    told = [one for one in idle if one.split()[0] not in SHOWN.get(name, ())]
    assert told == [], "\n".join(told)
