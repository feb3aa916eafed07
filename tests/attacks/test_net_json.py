"""JSON from elsewhere is bounded before anything is built of it; a check keeps other parsers out."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sublet
from sublet.protocol.bounded_json import MAX_DEPTH, BadJson, Why, check_json, parse_json
from sublet.protocol.lines import LineCutter, LineTooLong
from sublet.protocol.unique_json import unique_json

SRC = Path(sublet.__file__).parent
OWN = "a file or a database row that this daemon itself has written, below its own state"
TYPED = "what the person who runs the command has typed or piped into it, in her own process"
ALLOWED = {
    "protocol/bounded_json.py": "the parser",
    "protocol/documents.py": OWN,
    "protocol/ezagent/challenge.py": "a record that was parsed, checked and encoded here",
    "policy/guardrail/relaxed.py": "reads at a place in a model's reply of bounded size, and counts what it costs",
    "daemon/process/lock.py": OWN,
    "daemon/process/own_home.py": OWN,
    "daemon/config/paths.py": "our own lock file, bounded; each command reads it, so that no import may be paid",
    "daemon/approvals/questions.py": OWN,
    "daemon/audit_log/chain.py": OWN,
    "daemon/control/client.py": "what our own daemon answers to our own command line",
    "daemon/peering/homes.py": OWN,
    "daemon/peering/made_links.py": OWN,
    "daemon/peering/peer_names.py": OWN,
    "daemon/storage/event_log.py": OWN,
    "daemon/storage/torn_rows.py": OWN,
    "messaging/backends/purged_clocks.py": OWN,
    "messaging/backends/sqlite_invitations.py": OWN,
    "messaging/backends/sqlite_rows.py": OWN,
    "messaging/backends/sqlite_store.py": OWN,
    "migrations/layout.py": OWN,
    "migrations/salvage.py": OWN,
    "messaging/mending/agreed.py": OWN,
    "messaging/reading/reading.py": OWN,
    "supervisor/agent_config.py": "the schema that was made in the line before",
    "supervisor/chat/conversations.py": OWN,
    "supervisor/well_known/adding.py": "the owner's own agent.json, of bounded size, in the process of her command",
    "supervisor/replay/decisions.py": OWN,
    "supervisor/sessions/older_map.py": OWN,
    "workspace/changes/record.py": OWN,
    "workspace/kept/account.py": OWN,
    "workspace/kept/log.py": OWN,
    "workspace/staging/private_views.py": OWN,
    "cli/commands/asking/ask.py": TYPED,
    "cli/reaching/detach.py": "what the daemon that this command has started writes to its pipe",
    "cli/commands/governance/gateways.py": TYPED,
    "cli/commands/approving/grants.py": TYPED,
    "cli/commands/rooms/people.py": TYPED,
    "cli/commands/governance/policy.py": TYPED,
    "cli/commands/rooms/rooms.py": TYPED,
    "mcp_server/install.py": "configuration of the person's own programs, in her own process",
    "mcp_server/relay_session.py": "lines of the person's own host, in a process of its own; no import may be paid",
}
"""Modules that may use ``json``'s parser, and why."""


def parses(file: Path) -> bool:
    """Tell whether a module calls a parser of ``json``, or lets a library do it without a bound."""
    text = file.read_text(encoding="utf-8")
    if "json" not in text:  # most modules, and to parse all of them takes seconds
        return False
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == "json":
            return True
        if not isinstance(node, ast.Attribute):
            continue
        whose = node.value.id if isinstance(node.value, ast.Name) else ""
        if whose == "json" and node.attr in ("load", "loads", "JSONDecoder"):
            return True
        if node.attr == "json" and whose != "httpx":  # an answer's own parser
            return True
    return False


def test_nobody_else_parses_json_without_bounds() -> None:
    found = {str(file.relative_to(SRC)) for file in SRC.rglob("*.py") if parses(file)}
    assert found <= ALLOWED.keys(), "use sublet.protocol.bounded_json, or say why not in ALLOWED"
    assert found == ALLOWED.keys(), "a reason is left that nobody needs"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), Why.TOO_DEEP),
        (b'{"a":' * 5_000, Why.TOO_DEEP),
        (b"[" + b"0," * 100_001 + b"0]", Why.TOO_MANY),
        (b"[" + b'{"":0},' * 60_000 + b"0]", Why.TOO_MANY),
        (b"[" + b'"",' * 500_000 + b'""]', Why.TOO_MANY),
        (b"[0" + b"]" * (1 << 20), Why.MALFORMED),
        (b"[]" * (1 << 20), Why.TOO_MANY),
        (b" " * ((8 << 20) + 1), Why.TOO_LARGE),
        ("[1]".encode("utf-16"), Why.NOT_UTF8),
        ("[1]".encode("utf-16-le"), Why.MALFORMED),
        ("[1]".encode("utf-32-be"), Why.MALFORMED),
        (b"\xef\xbb\xbf[1]", Why.MALFORMED),
        (b'"\xed\xa0\x80"', Why.NOT_UTF8),
        (b'"\\ud800"', Why.HALF),
        ('"\ud800"', Why.HALF),
        (b'{"\\udfff":1}', Why.HALF),
        (b'{"a":1,"\\u0061":2}', Why.TWICE),
        (b"NaN", Why.MALFORMED),
        (b"[-Infinity]", Why.MALFORMED),
        (b"1e999", Why.MALFORMED),
        (b"9" * 5_000, Why.MALFORMED),
        (b"", Why.MALFORMED),
    ],
)
def test_what_is_refused(text: bytes | str, why: Why) -> None:
    with pytest.raises(BadJson) as refused:
        parse_json(text)
    assert refused.value.why is why


def test_what_is_taken() -> None:
    assert parse_json(b'{"a": [1, 2.5, "\\ud83d\\ude00", null], "b": "[[[[\\"{{{"}') == {
        "a": [1, 2.5, "😀", None],
        "b": '[[[["{{{',
    }
    assert parse_json(b'"' + b"[" * 10_000 + b'"') == "[" * 10_000
    assert parse_json(b'"' + b'\\"[,' * 60_000 + b'"') == '"[,' * 60_000
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    check_json(b"not json at all")


def test_a_mark_that_an_editor_writes_is_no_part_of_a_configuration() -> None:
    assert unique_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


def test_lines_are_cut_whatever_the_pieces_are() -> None:
    text = b"one\n\n \n\r\ntwo\nthr"
    for size in range(1, len(text) + 1):
        cutter = LineCutter(10)
        found = [line for at in range(0, len(text), size) for line in cutter.feed(text[at : at + size])]
        assert [*found, *cutter.end()] == [b"one", b"two", b"thr"]
    for words in (b"x" * 11, b"x" * 11 + b"\n", b"ok\n" + b"x" * 11, b"a\n" + b"x" * 11 + b"\nb"):
        with pytest.raises(LineTooLong):
            LineCutter(10).feed(words)
