"""Writer rules: the forms of ezagent 2.1 and section 5, parsed by one parser and decided by one evaluator.

A rule is a conjunction of terms. Terms about what never changes (who signed, whose key, who wrote the ref) refuse an
update where it comes in; terms about what changes (members, power, editors) only leave out what they forbid when
reading, so that replicas which learn of a change at different times hold the same log (DESIGN 6.6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from sublet.protocol.ezagent.ids import SYSTEM_ENTITY, EntityId
from sublet.protocol.patterns import Pattern

MAX_RULE_CHARS: Final = 256


class RuleError(ValueError):
    """A writer rule that can't be parsed: the registration of its datatype fails."""


class Facts(Protocol):
    """What a rule may ask of the write that it decides on."""

    @property
    def signer(self) -> EntityId:
        """Return who has signed the write."""

    @property
    def key(self) -> str | None:
        """Return the key that is written in a map, or None."""

    @property
    def first(self) -> bool:
        """Tell whether nothing was there before."""

    def named(self, attribute: str) -> EntityId | None:
        """Return the entity that an attribute like ``ref.author`` names here, or None where there is none."""

    def is_member(self) -> bool:
        """Tell whether the signer is a member of the room for this write."""

    def power_reaches(self, level: str) -> bool:
        """Tell whether the signer's power reaches the room's level of this name."""

    def is_owner(self) -> bool:
        """Tell whether the signer was an owner of the room for this write."""

    def is_editor(self) -> bool:
        """Tell whether the access list lets the signer edit."""


class Lasting(Enum):
    """Whether a term's answer can change after the write."""

    FIXED = "fixed"
    CHANGING = "changing"


@dataclass(frozen=True, slots=True)
class Term:
    """One condition, in the words of the rule."""

    text: str
    lasting: Lasting
    holds: Callable[[Facts], bool]


@dataclass(frozen=True, slots=True)
class WriterRule:
    """A parsed rule."""

    text: str
    terms: tuple[Term, ...]

    def acceptable(self, facts: Facts) -> bool:
        """Tell whether the terms that never change hold; where they don't, the update is refused."""
        return all(term.holds(facts) for term in self.terms if term.lasting is Lasting.FIXED)

    def counts(self, facts: Facts) -> bool:
        """Tell whether all terms hold, so that the write counts when reading."""
        return all(term.holds(facts) for term in self.terms)


def entity_of_key(key: str) -> EntityId:
    """Return the entity that a key of a map names: all of it, or what follows its first ``:@``."""
    if key.startswith("@"):
        return key
    return "@" + key.partition(":@")[2]


_NAMED: Final[Mapping[str, Lasting]] = {
    "entity_id": Lasting.FIXED,
    "author": Lasting.FIXED,
    "ref.author": Lasting.FIXED,
    "content.author": Lasting.FIXED,
    "acl.owner": Lasting.CHANGING,
}
_BETWEEN = Pattern(r"\s+AND\s+|,")
_LEVEL = Pattern(r"signer\.power_level >= (?:power_levels\.)?([a-z][a-z0-9_.-]{0,62})\Z")
_OWN_KEYS: Final = frozenset(
    {
        "annotation_key contains signer_id",
        "key contains signer entity_id",
        "y.map key == signer entity_id",
        "key == signer",
    }
)
_OWN_DOCUMENTS: Final = frozenset({"signer == entity_id in key", "signer == entity_id in doc_id"})


def parse_rule(text: str) -> WriterRule:
    """Return the rule that ``text`` writes.

    Args:
        text: terms joined by ``AND`` or commas; ``∈`` may be written ``in``.

    Raises:
        RuleError: a term of no known form.
    """
    if len(text) > MAX_RULE_CHARS:
        raise RuleError("a writer rule is too long")
    pieces = [piece.strip() for piece in _BETWEEN.split(text)]
    return WriterRule(text, tuple(_term(" ".join(piece.replace("∈", " in ").split())) for piece in pieces))


def _term(text: str) -> Term:
    plain = text.lower()
    if plain in ("signer in room.members", "any room member"):
        return Term(text, Lasting.CHANGING, lambda facts: facts.is_member())
    if plain == "signer in acl.editors":
        return Term(text, Lasting.CHANGING, lambda facts: facts.is_editor())
    if plain in ("any authenticated entity", "any peer"):
        return Term(text, Lasting.FIXED, lambda facts: facts.signer != SYSTEM_ENTITY)
    if plain in ("one-time write", "one time write"):
        return Term(text, Lasting.FIXED, lambda facts: facts.first)
    if plain == f"signer == {SYSTEM_ENTITY}" or plain == SYSTEM_ENTITY:
        return Term(text, Lasting.FIXED, lambda facts: facts.signer == SYSTEM_ENTITY)
    if plain in _OWN_KEYS:
        return Term(text, Lasting.FIXED, _own_key)
    if plain in _OWN_DOCUMENTS:
        return _signer_is(text, "entity_id")
    if plain == "message author or owner":
        return Term(text, Lasting.CHANGING, lambda facts: facts.named("ref.author") == facts.signer or facts.is_owner())
    if plain == "message author":
        return _signer_is(text, "ref.author")
    level = _LEVEL.match(plain)
    if level is not None:
        name = level[1]
        return Term(text, Lasting.CHANGING, lambda facts: facts.power_reaches(name))
    left, equals, right = plain.partition(" == ")
    if equals and "signer" in (left, right):
        attribute = right if left == "signer" else left
        if attribute in _NAMED:
            return _signer_is(text, attribute)
    raise RuleError(f"not a term of a writer rule: {text!r}")


def _signer_is(text: str, attribute: str) -> Term:
    return Term(text, _NAMED[attribute], lambda facts: facts.named(attribute) == facts.signer)


def _own_key(facts: Facts) -> bool:
    return facts.key is not None and entity_of_key(facts.key) == facts.signer
