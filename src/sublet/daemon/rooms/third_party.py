"""Extensions of others that ``config.json`` names: code that is installed beside Sublet and runs in the daemon.

Only entry points are looked at, never a path or a module's name, and nothing that came over a wire: who installs a
package and names it in the configuration trusts it as much as Sublet itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Final

from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.schema.datatypes import Origin
from sublet.protocol.errors import LocalCode, SubletError

GROUP: Final = "sublet.messaging"


def load_third_party(names: Sequence[str]) -> tuple[Declaration, ...]:
    """Return the declarations of extensions by the names of their entry points. Blocks on the disk.

    Raises:
        SubletError: ``UNAVAILABLE``: one is not installed, is installed twice, fails, or is no such extension.
    """
    return tuple(_load(name) for name in dict.fromkeys(names))


def _load(name: str) -> Declaration:
    found = list(entry_points(group=GROUP, name=name))
    if len(found) != 1:
        raise _unusable(name, "is not installed" if not found else "is installed more than once")
    try:
        loaded = found[0].load()
    except Exception as error:
        raise _unusable(name, f"fails: {error}") from error
    if not isinstance(loaded, Declaration) or loaded.origin is not Origin.THIRD_PARTY or loaded.id != name:
        raise _unusable(name, "is no declaration of an extension of this name")
    return loaded


def _unusable(name: str, why: str) -> SubletError:
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"the extension {name} of config.json {why}",
        "Install it beside Sublet, or take it out of messaging.extensions; see docs/extensions.md.",
    )
