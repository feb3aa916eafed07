"""What comes from the wire, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sublet.protocol.ezagent.ids import EntityId


@dataclass(frozen=True, slots=True)
class Arrival:
    """An envelope that came from the wire, with the contents that came along."""

    envelope: bytes
    contents: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        """Return how many bytes it takes."""
        return len(self.envelope) + sum(map(len, self.contents))


@dataclass(slots=True)
class ArrivalReport:
    """What came of a batch: which documents have gaps, whose keys are wanted, and what was refused."""

    accepted: int = 0
    gaps: set[str] = field(default_factory=set)
    unknown_signers: set[EntityId] = field(default_factory=set)
    forged: int = 0
    """What nobody has signed, or says nothing: no honest peer hands it on."""
    left: int = 0
    """What was refused for any reason, is kept back, or waits for a key."""

    def add(self, other: ArrivalReport) -> None:
        """Add what came of another batch."""
        self.accepted += other.accepted
        self.gaps |= other.gaps
        self.unknown_signers |= other.unknown_signers
        self.forged += other.forged
        self.left += other.left
