"""What decisions were made from beside their events: the documents that these name by digest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from sublet.policy.recorded import DECIDED
from sublet.policy.rule_set import RuleSet, rule_set_of
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import Event

if TYPE_CHECKING:
    from sublet.policy.guardrail.schema import CheckedSchema

GUARDRAIL: Final = "guardrail"
"""In the data of ``dispatch_result``: how the answer passed."""
_NAMES: Final = ("schema", "kept")


def digests_of(events: Iterable[Event]) -> list[str]:
    """Return the digests of all documents that ``events`` name, each once."""
    found: dict[str, None] = {}
    for event in events:
        decided, checked = event.data.get(DECIDED), event.data.get(GUARDRAIL)
        named = [event.data.get(name) for name in _NAMES]
        if isinstance(decided, dict):
            named.append(decided.get("rules"))
        if isinstance(checked, dict):
            named += [checked.get(name) for name in _NAMES]
        found |= {one: None for one in named if isinstance(one, str)}
    return list(found)


class Basis:
    """The documents that are still kept, and the rules that hold now where these are to decide.

    Args:
        documents: by digest.
        current: decides in place of the rules of then.
    """

    def __init__(self, documents: Mapping[str, JsonValue], current: RuleSet | None = None) -> None:
        self._documents = documents
        self._read: dict[str, RuleSet] = {}
        self._schemas: dict[str, CheckedSchema] = {}
        self.current = current

    def document(self, digest: JsonValue) -> JsonValue:
        """Return what is kept under ``digest``; None where nothing is."""
        return self._documents.get(digest) if isinstance(digest, str) else None

    def schema(self, digest: JsonValue) -> CheckedSchema | None:
        """Return the schema that is kept under ``digest``; None where none is.

        Raises:
            SubletError: it can't be used any more.
        """
        document = self.document(digest)
        if not isinstance(digest, str) or not isinstance(document, dict):
            return None
        if digest not in self._schemas:
            from sublet.policy.guardrail.schema import CheckedSchema  # loaded by whoever uses one

            self._schemas[digest] = CheckedSchema(document)
        return self._schemas[digest]

    def rules(self, digest: str | None) -> RuleSet | None:
        """Return the rules to decide by; None where those of then are not kept any more.

        Raises:
            ValueError: what is kept can't be read.
        """
        if self.current is not None:
            return self.current
        if digest is None or digest not in self._documents:
            return None
        if digest not in self._read:
            self._read[digest] = rule_set_of(self._documents[digest])
        return self._read[digest]
