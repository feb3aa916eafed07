"""Which epoch a room writes under, whose turn it is, and who is to be handed a key: rules that all members share.

Rules: an epoch may be written under if it was opened, goes on from one that was, its opener knew of every removal that
is known here, and has sealed its key for nobody who may not read now. Of several the one of the highest number counts,
and of those the one of the highest id; so members that have the same statements and the same roster write under the
same epoch, whoever else has begun one at the same time. A key is handed on by those alone who know of every removal
that its opener knew of: whoever is behind may take somebody for a member who is gone. Turns follow a hash that nobody
chooses, and who is away is waited for only so long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sublet.protocol.ezagent.ids import EntityId
from sublet.protocol.ezagent.sealing.state import Epoch, History, Lack, Member, RoomKeys
from sublet.protocol.ezagent.sealing.wire import DeviceId, short_hash

TURN_MS: Final = 1_000
"""How long a device is waited for whose turn it is."""
MAX_TURNS: Final = 8
"""Whoever comes later in turn waits no longer than this many of them."""
MAX_CANDIDATES: Final = 16
"""Of the last epochs, of which one may be written under; before these, none is looked for."""
_ANY: Final = frozenset({b""})
_TURN: Final = b"sublet/turn/1"


def current_of(state: RoomKeys) -> bytes | None:
    """Return the id of the epoch to write under, or None where another has to begin."""
    epochs = state.epochs
    rooted = sorted(_rooted(epochs), key=lambda id: (epochs[id].name.number, id), reverse=True)
    return next((id for id in rooted[:MAX_CANDIDATES] if _is_fit(state, epochs[id])), None)


def _rooted(epochs: Mapping[bytes, Epoch]) -> set[bytes]:
    """Return the epochs that were opened and go on from each other, down to the first."""
    found: set[bytes] = set()
    for id in sorted(epochs, key=lambda id: epochs[id].name.number):
        epoch = epochs[id]
        before = epochs[epoch.name.after].name.number if epoch.name.after in found else 0
        if epoch.is_opened and epoch.name.number == before + 1:
            found.add(id)
    return found


def _is_fit(state: RoomKeys, epoch: Epoch) -> bool:
    """Tell whether an epoch may be written under.

    To whom its key was handed later says nothing against it: who does that honestly knows of every removal that the
    opener knew of, and hands it to nobody who was removed; and what others do, they do without saying so.
    """
    if not {epoch.name.opener, *epoch.boxes} <= state.roster.keys():
        return False
    if state.history is History.SINCE_JOINED:
        everybody = frozenset(member.entity for member in state.roster.values())
        if everybody != _entities(epoch, state.roster):
            return False
    return state.removals <= told_of(state.epochs, epoch)


def _entities(epoch: Epoch, roster: Mapping[DeviceId, Member]) -> frozenset[EntityId]:
    return frozenset(roster[device].entity for device in epoch.known_by if device in roster)


def last_opened(epochs: Mapping[bytes, Epoch]) -> Epoch | None:
    """Return the epoch that the next one goes on from; None before the first."""
    rooted = (epochs[id] for id in _rooted(epochs))
    return max(rooted, key=lambda epoch: (epoch.name.number, epoch.name.id), default=None)


def delay_ms(subject: bytes, devices: Iterable[DeviceId], own: DeviceId) -> int:
    """Return how long our device waits for others that come before it in turn, milliseconds.

    Args:
        subject: what is to be done; another order for each.
        devices: who may do it.
        own: our device, which is one of these.
    """
    ours = short_hash(_TURN, subject, own)
    earlier = sum(1 for device in devices if short_hash(_TURN, subject, device) < ours)
    return min(earlier, MAX_TURNS) * TURN_MS


def unheard_of(epochs: Mapping[bytes, Epoch], removals: frozenset[bytes]) -> dict[bytes, frozenset[bytes]]:
    """Return of each epoch that goes on from the first the removals that its opener knew, and that are not here."""
    found: dict[bytes, frozenset[bytes]] = {}
    for id in sorted(_rooted(epochs), key=lambda id: epochs[id].name.number):
        epoch = epochs[id]
        before = found.get(epoch.name.after, frozenset())
        found[id] = (before - epoch.unknown) | (epoch.learned - removals)
    return found


def told_of(epochs: Mapping[bytes, Epoch], last: Epoch | None) -> frozenset[bytes]:
    """Return the removals that the opener of an epoch knew."""
    chain: list[Epoch] = []
    while last is not None:
        chain.append(last)
        last = epochs.get(last.name.after)
    told: frozenset[bytes] = frozenset()
    for epoch in reversed(chain):
        told = (told - epoch.unknown) | epoch.learned
    return told


def lacks(state: RoomKeys) -> Iterator[Lack]:
    """Yield each epoch whose key we may hand on, with each device that is to get it and has not, or says so."""
    unheard = unheard_of(state.epochs, state.removals)
    for id in state.keys:
        if unheard.get(id, _ANY):
            continue
        epoch = state.epochs[id]
        entities = _entities(epoch, state.roster)
        for device, member in state.roster.items():
            if device == state.own.id or (state.own.id, device) in epoch.handed:
                continue
            may = state.history is History.SHARED or member.entity in entities
            says_so = device in epoch.wanted_by and (device, device) not in epoch.handed
            if may and (says_so or device not in epoch.known_by):
                yield id, device
