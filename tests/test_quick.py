"""What ``make check`` leaves out, and what one worker gets together, follows from what modules of tests hold."""

from __future__ import annotations

import pytest

from support.quick import TESTS, is_quick, starts_programs
from support.scheduling import stays_together


@pytest.mark.parametrize(
    ("module", "quick"),
    [
        ("policy/test_rules.py", True),
        ("test_names.py", True),
        ("workspace/git/test_repository.py", False),  # starts git itself
        ("mcp_server/test_mcp_server_tool_calls.py", False),  # by a helper
        ("e2e/test_delegation.py", False),
        ("attacks/test_net_patterns.py", False),  # starts nothing, but tests no package by its name
    ],
)
def test_a_module_is_quick_where_it_starts_nothing(module: str, quick: bool) -> None:
    assert is_quick(TESTS / module) is quick


def test_every_helper_that_starts_daemons_or_browsers_is_seen() -> None:
    for name in ("daemons", "command_server", "browser", "terminal", "chat_process", "room_processes", "mcp_face"):
        assert starts_programs(TESTS / "support" / f"{name}.py"), name


@pytest.mark.parametrize(
    ("module", "together"),
    [
        ("e2e/test_attach.py", True),  # its daemons are the module's
        ("attacks/test_probes_failures.py", False),
        ("policy/test_rules.py", True),  # quick, so that to give it out test by test costs more
        ("workspace/changes/test_apply_crash.py", False),  # seconds each
    ],
)
def test_tests_that_share_daemons_stay_together(module: str, together: bool) -> None:
    assert stays_together(f"tests/{module}") is together
