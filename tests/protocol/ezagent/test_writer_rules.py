"""Writer rules: every form of the specification parses, and nothing else does."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from sublet.protocol.ezagent.writer_rules import RuleError, entity_of_key, parse_rule


@dataclass
class Write:
    """The facts about one write."""

    signer: str = "@a:x"
    key: str | None = None
    first: bool = True
    names: dict[str, str] = field(default_factory=dict)
    member: bool = True
    power: int = 0
    editor: bool = False
    owner: bool = False

    def named(self, attribute: str) -> str | None:
        return self.names.get(attribute)

    def is_member(self) -> bool:
        return self.member

    def power_reaches(self, level: str) -> bool:
        return self.power >= {"admin": 50, "ext.moderation": 40}[level]

    def is_owner(self) -> bool:
        return self.owner

    def is_editor(self) -> bool:
        return self.editor


AUTHOR = {"ref.author": "@a:x", "author": "@a:x", "content.author": "@a:x", "acl.owner": "@a:x", "entity_id": "@a:x"}


@pytest.mark.parametrize(
    ("rule", "yes", "no"),
    [
        ("signer == entity_id", Write(names=AUTHOR), Write()),
        ("signer ∈ room.members", Write(), Write(member=False)),
        ("signer.power_level >= admin", Write(power=50), Write(power=49)),
        ("signer.power_level >= power_levels.ext.moderation", Write(power=40), Write(power=39)),
        ("signer == ref.author", Write(names=AUTHOR), Write(names={"ref.author": "@b:x"})),
        ("signer ∈ acl.editors", Write(editor=True), Write()),
        ("annotation_key contains signer_id", Write(key="x:@a:x"), Write(key="x:@b:x")),
        ("signer ∈ room.members AND ref.author == signer", Write(names=AUTHOR), Write(names=AUTHOR, member=False)),
        ("signer == author, one-time write", Write(names=AUTHOR), Write(names=AUTHOR, first=False)),
        ("signer == content.author", Write(names=AUTHOR), Write()),
        ("signer == acl.owner", Write(names=AUTHOR), Write()),
        ("Y.Map key == signer entity_id", Write(key="@a:x"), Write(key="@b:x")),
        ("signer == entity_id in key", Write(names=AUTHOR), Write()),
        ("signer == entity_id in doc_id", Write(names=AUTHOR), Write()),
        ("any authenticated entity", Write(), Write(signer="@system:local")),
        ("any room member", Write(), Write(member=False)),
        ("message author", Write(names=AUTHOR), Write()),
        ("message author or owner", Write(names=AUTHOR), Write()),
        ("message author or owner", Write(owner=True), Write(names={"ref.author": "@b:x"})),
        ("key contains signer entity_id", Write(key="@a:x"), Write()),
        ("@system:local", Write(signer="@system:local"), Write()),
    ],
)
def test_every_form_of_the_specification(rule: str, yes: Write, no: Write) -> None:
    parsed = parse_rule(rule)
    assert parsed.counts(yes)
    assert not parsed.counts(no)


def test_what_changes_never_refuses() -> None:
    rule = parse_rule("signer ∈ room.members AND ref.author == signer")
    assert rule.acceptable(Write(names=AUTHOR, member=False))
    assert not rule.acceptable(Write())


@pytest.mark.parametrize(
    "text", ["", "signer", "signer == ", "signer == anybody", "signer > 1", "signer == ref.author OR x", "x" * 300]
)
def test_an_unparsable_rule_is_an_error(text: str) -> None:
    with pytest.raises(RuleError):
        parse_rule(text)


@pytest.mark.parametrize(
    ("key", "entity"),
    [("@a:x", "@a:x"), ("👍:@a:x", "@a:x"), ("👍:@b:x:@a:x", "@b:x:@a:x"), ("@a:x.evil", "@a:x.evil"), ("a:x", "@")],
)
def test_a_key_names_one_entity(key: str, entity: str) -> None:
    assert entity_of_key(key) == entity
