"""What the beginning of a request says by itself: ``/hub MODULE …``, ``@agent …``, ``/agents``, ``/help``.

Only the very beginning counts. What stands further down may be quoted from anywhere, and addresses nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sublet.protocol.patterns import SPACE, Pattern

_HUB = Pattern(rf"/hub(?:[ \t]+(?P<module>[^{SPACE}]{{1,200}}))?(?:[{SPACE}]+(?P<rest>.*))?\Z", dot_all=True)
_MENTION = Pattern(rf"@(?P<agent>[A-Za-z0-9][A-Za-z0-9._-]{{0,62}})(?:[{SPACE}:,]+(?P<rest>.*))?\Z", dot_all=True)
_WORD = Pattern(r"[\pL\pN]+(?:[._-][\pL\pN]+)*")
_INNER = Pattern(r"@([A-Za-z0-9][A-Za-z0-9._-]{0,62})")
_JOINT = Pattern(r"[._-]")


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
        return Direct("mention", found["agent"].rstrip(".").lower(), (found["rest"] or "").strip())
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
    found = _INNER.finditer(text)
    return {one[1].rstrip(".").lower() for one in found if not _joined(text[one.start() - 1] if one.start() else "")}


def words(text: str) -> set[str]:
    """Return the words of ``text``, folded, with those of compounds beside them."""
    found = {word.casefold() for word in _WORD.findall(text)}
    return found | {part for word in found for part in _JOINT.split(word) if part}


def _joined(before: str) -> bool:
    """Tell whether a mention behind this character is part of something else, as in a mail address."""
    return before.isalnum() or before in ("_", "@")
