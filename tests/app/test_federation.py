"""What a node calls itself."""

from __future__ import annotations

from sublet.app.federation import own_name
from sublet.federation.settings import Settings

KEY = b"k" * 32


def test_a_node_is_called_as_the_file_says_or_as_its_machine_with_the_beginning_of_its_keys_hash() -> None:
    assert own_name(Settings(node_id="kitchen.local"), KEY) == "kitchen.local"
    other = own_name(Settings(), KEY)
    assert other != "kitchen.local"
    assert other != own_name(Settings(), b"x" * 32)
