"""Demands on a sandbox are compared by value."""

from __future__ import annotations

import pytest

from sublet.protocol.demands import names_to_enforce, parse_demand, unmet
from sublet.protocol.messages import SandboxProfile

HELD = SandboxProfile(cwd_only=True, allow_network=False, allow_exec=False)
LOOSE = SandboxProfile(cwd_only=False, allow_network=True, allow_exec=True)
NAMES = ["allow_exec", "allow_network", "cwd_only"]


def test_a_name_alone_is_the_restriction() -> None:
    assert unmet(NAMES, HELD, NAMES) == []
    assert unmet(NAMES, LOOSE, NAMES) == NAMES, "a name beside another value says nothing"
    assert unmet(NAMES, HELD, []) == NAMES, "a value that nobody enforces says nothing"
    assert unmet(NAMES, None, NAMES) == [], "who declares no values is taken by what it says it enforces"
    assert unmet(NAMES, None, ["cwd_only"]) == ["allow_exec", "allow_network"]
    assert unmet(["cwd_only=true", "allow_network=false"], HELD, NAMES) == []


def test_what_is_only_to_be_there_has_to_be_declared() -> None:
    wanted = ["allow_exec=true", "allow_network=true"]
    assert unmet(wanted, LOOSE, []) == []
    assert unmet(wanted, HELD, NAMES) == wanted
    assert unmet(wanted, None, NAMES) == wanted


def test_limits_are_names() -> None:
    assert unmet(["memory", "processes"], LOOSE, ["memory"]) == ["processes"]


def test_an_invitation_names_what_has_to_be_enforced() -> None:
    assert names_to_enforce(["memory", "allow_network=false", "allow_exec=true", "cwd_only"]) == [
        "memory",
        "allow_network",
        "cwd_only",
    ]


@pytest.mark.parametrize("text", ["", "memory=1", "memory=true", "cwd_only=", "cwd_only=yes", "Cwd", "cwd_only=true\n"])
def test_what_is_no_demand(text: str) -> None:
    with pytest.raises(ValueError, match="is no demand"):
        parse_demand(text)
