"""What the beginning of a request says by itself: ``/hub MODULE …``, ``@agent …``, ``/agents``, ``/help``.

Only the very beginning counts. What stands further down may be quoted from anywhere, and addresses nobody.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_HUB = re.compile(r"/hub(?:[ \t]+(?P<module>[^\s]{1,200}))?(?:\s+(?P<rest>.*))?\Z", re.DOTALL)
_MENTION = re.compile(r"@(?P<agent>[A-Za-z0-9][A-Za-z0-9._-]{0,62})(?=[\s:,]|\Z)[\s:,]*(?P<rest>.*)\Z", re.DOTALL)
_WORD = re.compile(r"[^\W_]+(?:[._-][^\W_]+)*")
_INNER = re.compile(r"(?<![\w@])@([A-Za-z0-9][A-Za-z0-9._-]{0,62})")


@dataclass(frozen=True, slots=True)
class Direct:
    """What was addressed: a module (empty where ``/hub`` names none), an agent, or a command; and the rest."""

    kind: Literal["hub", "mention", "agents", "help"]
    name: str
    rest: str


def parse(text: str) -> Direct | None:
    """Return what the beginning of ``text`` addresses, or None where it is plain text."""
    if found := _HUB.match(text):
        return Direct("hub", (found["module"] or "").lower(), (found["rest"] or "").strip())
    if found := _MENTION.match(text):
        return Direct("mention", found["agent"].lower().rstrip("."), found["rest"].strip())
    word = text.strip()
    if word in ("/agents", "/help"):
        return Direct("agents" if word == "/agents" else "help", "", "")
    return None


def is_direct_hub(text: str) -> bool:
    """Tell whether ``text`` goes straight to a module, past the supervisor."""
    direct = parse(text)
    return direct is not None and direct.kind == "hub"


def mentions(text: str) -> set[str]:
    """Return the names that ``text`` mentions anywhere as ``@name``."""
    return {name.lower().rstrip(".") for name in _INNER.findall(text)}


def words(text: str) -> set[str]:
    """Return the words of ``text``, folded, with those of compounds beside them."""
    found = {word.casefold() for word in _WORD.findall(text)}
    return found | {part for word in found for part in re.split(r"[._-]", word) if part}
