"""Names of servers and tools as A2C-SMCP makes them; the ids are those that the published package gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from sublet.protocol.offices.tool_names import bundle_id, exposed_name


@pytest.mark.parametrize(
    ("name", "argv", "env", "made"),
    [
        ("My Server!", ["x"], {}, "My_Server"),
        ("__a__b--", ["x"], {}, "a_b"),
        ("a.b", ["x"], {}, "a_b"),
        ("日本", ["uvx", "mcp"], {"B": "2", "A": "é"}, "bundle_eb660833eacaec93"),
        ("..", ["uvx"], {}, "bundle_b105ed9b8d6b4b3f"),
    ],
)
def test_a_server_has_the_id_that_the_published_package_gives_it(
    name: str, argv: Sequence[str], env: Mapping[str, str], made: str
) -> None:
    assert bundle_id(name, argv, env) == made
    assert exposed_name(made, "add") == f"{made}__add"
