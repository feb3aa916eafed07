"""The one place where messages have values of any type: fields are JSON, and extensions add keys that no type names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from sublet.protocol.ezagent.yjs.encode import Nested
from sublet.protocol.ezagent.yjs.update import Value

Fields: TypeAlias = dict[str, Any]
"""Fields of a ref or of a map document as they count. Those of the core are checked when they come (``authorise.py``);
what an extension reads of its own it checks itself, since a peer may have written anything there."""
FieldsView: TypeAlias = Mapping[str, Any]
"""The same, to be read alone."""
Written: TypeAlias = "Value | Nested"
"""What is written under a key: a plain value, None to take it away, or a map that others write into."""
