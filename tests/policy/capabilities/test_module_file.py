"""``module.json`` is checked before anything relies on it, and each level tells only its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sublet.policy.capabilities.disclosure import Documents, disclose, estimated_tokens
from sublet.policy.capabilities.module_file import MAX_MODULE_BYTES, CapabilityModule, parse_module
from sublet.protocol.errors import LocalCode, SubletError

GOOD: dict[str, Any] = {
    "id": "bd",
    "name": "Beads",
    "version": "1.2",
    "description": "An issue tracker.",
    "command": "bd",
}
TEXTS = Documents(readme="# Beads\nREADME-WORDS", cli="bd list\nCLI-WORDS", help="HELP-WORDS")


def module(**more: Any) -> CapabilityModule:
    return parse_module(json.dumps({**GOOD, **more}).encode(), "bd")


def test_defaults_are_those_of_the_format() -> None:
    one = module()
    assert (one.help_args, one.version_args) == (("help",), ("--version",))
    assert (one.readme_file, one.cli_doc_file, one.enabled, one.tool) == ("README.md", "cli.md", True, "capability.bd")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"id": "../etc"}, "id"),
        ({"id": "other"}, "its directory is named otherwise"),
        ({"readmeFile": "../../etc/passwd"}, "readmeFile"),
        ({"cliDocFile": "/etc/passwd"}, "cliDocFile"),
        ({"cliDocFile": ".hidden"}, "cliDocFile"),
        ({"command": "sh -c evil"}, "arguments go to defaultArgs"),
        ({"command": "../evil"}, "command"),
        ({"command": "./../evil"}, "command"),
        ({"command": "/opt/../bin/x"}, "no '..'"),
        ({"command": "-rf"}, "command"),
        ({"defaultArgs": ["a\0b"]}, "defaultArgs"),
        ({"defaultArgs": "ab"}, "defaultArgs"),
        ({"role": 5}, "role"),
        ({"enabled": "yes"}, "enabled"),
        ({"description": "two\nlines"}, "description"),
        ({"environment": ["A=B"]}, "environment"),
        ({"timeoutSeconds": 10_000}, "timeoutSeconds"),
    ],
)
def test_what_is_not_clear_is_refused_by_its_place(more: dict[str, Any], words: str) -> None:
    with pytest.raises(SubletError) as refused:
        module(**more)
    assert words in refused.value.message


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"id": "bd", "id": "bd"}', b"[" * 70_000, b"\xff"])
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(SubletError, match=r"module\.json"):
        parse_module(raw, "bd")


def test_each_level_tells_its_own_and_nothing_of_the_others() -> None:
    one = module(arguments={"items": {"enum": ["list"]}})
    first, second, third = (disclose(one, TEXTS, level).text for level in (1, 2, 3))
    assert "An issue tracker." in first
    assert "HELP-WORDS" in second
    assert '"enum":["list"]' in second
    assert "README-WORDS" in third
    assert "CLI-WORDS" in third
    assert not any(words in first for words in ("HELP", "README", "CLI", "enum"))
    assert not any(words in second for words in ("README-WORDS", "CLI-WORDS", "An issue tracker."))
    assert not any(words in third for words in ("HELP-WORDS", "enum"))


def test_a_budget_cuts_after_whole_lines_and_always_at_the_same_place() -> None:
    one, texts = module(), Documents(cli="\n".join(f"line {number}" for number in range(10_000)))
    told = disclose(one, texts, 3, 100)
    assert told.tokens <= 100
    assert estimated_tokens(told.text) == told.tokens
    assert told.left_out > 9_000
    assert told.text.splitlines()[-1].startswith(f"[… {told.left_out} lines left out")
    assert told == disclose(one, texts, 3, 100)
    assert disclose(one, texts, 3).tokens <= 6_000


USUAL: dict[str, Any] = {"type": "array", "items": {"type": "string", "maxLength": 8_192}, "maxItems": 64}


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        (None, USUAL),
        ({}, {"type": "array", "maxItems": 64}),
        ({"minItems": 1, "maxItems": 3}, {"minItems": 1, "maxItems": 3, "type": "array"}),
        ({"maxItems": 64}, {"maxItems": 64, "type": "array"}),
        ({"maxItems": 65, "type": "object"}, {"maxItems": 64, "type": "array"}),
        ({"maxItems": "x"}, {"maxItems": "x", "type": "array"}),
    ],
)
def test_the_list_of_arguments_is_bounded_whatever_the_file_says(given: Any, schema: dict[str, Any]) -> None:
    assert module(arguments=given).schema_of_arguments() == schema


@pytest.mark.parametrize("command", ["bd", "./bd.sh", "/opt/b d/x", "a+b_c-1.2"])
def test_one_program_is_a_command(command: str) -> None:
    assert module(command=command).command == command
    assert module(command=command).own_file == (command[2:] if command.startswith("./") else None)


def test_a_file_of_just_the_most_bytes_is_read_and_a_wrong_one_is_told_by_its_field() -> None:
    raw = json.dumps(GOOD).encode()
    assert parse_module(raw + b" " * (MAX_MODULE_BYTES - len(raw)), "bd") == module()
    with pytest.raises(SubletError) as refused:
        parse_module(raw + b" " * (MAX_MODULE_BYTES + 1 - len(raw)), "bd")
    assert refused.value.message == f"module.json: is not JSON: it has more than {MAX_MODULE_BYTES} bytes"
    with pytest.raises(SubletError) as refused:
        module(defaultArg=[])
    assert refused.value.code is LocalCode.INVALID_ARGUMENT
    assert refused.value.message.startswith("module.json: defaultArg: there is no such field")
    assert "defaultArgs" in refused.value.message
