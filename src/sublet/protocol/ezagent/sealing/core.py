"""Decides everything about the keys of one room, for one device, without sockets, files, clocks or chance.

``step(state, event, now_ms)`` returns the state that follows and what is to be done. All devices run the same table;
none is a leader. Its rules:

- Nothing is sealed under an epoch whose key anybody holds who may not read *now*: from the step that takes a member or
  a device off the roster, there is nothing to write under until another epoch has begun.
- An epoch's key is made once, by its opener, and handed to every device on the roster, its own among them. Whoever
  holds it hands it on to those who lack it, in turn, if it knows of every removal that the opener knew of.
- Who may read and has not got the key asks for it, then tells, then begins an epoch of its own: a member that withholds
  keys is told, and holds nobody up.
- What counts is a function of the statements and the roster, not of their order (``choosing``).
- Keys that are forgotten are never opened again, whatever statement comes once more.

Weak: a member hands a key to whomever it likes, here or by other ways, as it does with what it has read. A hostile
member that begins epochs which leave somebody out makes that one begin as many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from sublet.protocol.ezagent.sealing import choosing
from sublet.protocol.ezagent.sealing.events import (
    Complaint,
    DeviceRenewed,
    Event,
    KeysCame,
    KeysForgotten,
    Output,
    RosterChanged,
    Say,
    StatementsCame,
    Step,
    Tell,
    TimePassed,
    Wake,
)
from sublet.protocol.ezagent.sealing.state import Epoch, Lack, Phase, RoomKeys, phase_of
from sublet.protocol.ezagent.sealing.statements import (
    MAX_BOXES,
    MAX_REMOVALS,
    EpochName,
    KeyStatement,
    Kind,
    commit,
    make_statement,
    open_box,
)
from sublet.protocol.ezagent.sealing.wire import NO_ID, DeviceId

MAX_EPOCHS_OF_DEVICE: Final = 1_024
"""Epochs that one device opens; of more nothing is known."""
MAX_EPOCHS: Final = 8_192
MAX_SAID_OF_EPOCH: Final = 4_096
"""Who was handed the key of an epoch by whom, and who lacks it, as far as that is kept."""
MAX_HANDED_AT_ONCE: Final = 64
"""Epochs that are handed on in one step; the rest in the next."""
ASK_MS: Final = 10_000
"""After which a key is asked for that should be here."""
WITHHELD_MS: Final = 60_000
"""After which it counts as withheld."""


def step(state: RoomKeys, event: Event, now_ms: int) -> Step:
    """Return the state after ``event``, and what is to be done, in order.

    Args:
        state: as the last step has left it.
        event: what has happened.
        now_ms: Unix milliseconds.
    """
    return _TABLE[phase_of(state)].get(type(event), _ignore)(state, event, now_ms)


def _ignore(state: RoomKeys, event: Event, now_ms: int) -> Step:
    return state, ()


def _roster(state: RoomKeys, event: RosterChanged, now_ms: int) -> Step:
    """Take who may read now; what that asks for is done when time passes, which is at once."""
    after = replace(state, roster=dict(event.roster), history=event.history, removals=event.removals)
    if after == state and not event.by_us:
        return state, ()
    return _chosen(replace(after, our_turn=event.by_us or state.our_turn)), (Wake(now_ms),)


def _statements(state: RoomKeys, event: StatementsCame, now_ms: int) -> Step:
    """Take what others say, and open what they have handed us."""
    after, outputs = _taken(state, event.statements)
    return (after, (*outputs, Wake(now_ms))) if after.epochs != state.epochs or outputs else (state, ())


def _renewed(state: RoomKeys, event: DeviceRenewed, now_ms: int) -> Step:
    return replace(state, own=event.own), ()


def _forgotten(state: RoomKeys, event: KeysForgotten, now_ms: int) -> Step:
    """Forget keys, but for that of the epoch which is written under."""
    kept = {
        id: key for id, key in state.keys.items() if id == state.current or state.epochs[id].name.number >= event.below
    }
    return replace(state, keys=kept, forgotten=max(state.forgotten, event.below)), ()


def _when_due(state: RoomKeys, event: TimePassed, now_ms: int) -> Step:
    """Begin an epoch when it is our turn."""
    last = choosing.last_opened(state.epochs)
    lack: Lack = (last.name.id if last is not None else NO_ID, NO_ID)
    since = state.since.get(lack, now_ms)
    at = since + (0 if state.our_turn else choosing.delay_ms(lack[0], state.roster, state.own.id))
    if now_ms < at:
        return replace(state, since={lack: since}), (Wake(at),)
    return _begin(state, event.fresh, now_ms)


def _when_lacking(state: RoomKeys, event: TimePassed, now_ms: int) -> Step:
    """Ask for the key, and in the end do without it."""
    current = state.current
    assert current is not None, "lacking"
    epoch, lack = state.epochs[current], (current, state.own.id)
    since = state.since.get(lack, now_ms)
    state = replace(state, since={lack: since})
    if now_ms < since + ASK_MS:
        return state, (Wake(since + ASK_MS),)
    if now_ms >= since + WITHHELD_MS:
        after, told = _told(state, Complaint.WITHHELD, epoch.name.opener, current)
        begun, outputs = _begin(after, event.fresh, now_ms)
        return begun, (*told, *outputs)
    later = Wake(since + WITHHELD_MS)
    if current in state.asked:
        return state, (later,)
    wanted = make_statement(Kind.WANTED, epoch.name, state.own.signing)
    after, _ = _taken(replace(state, asked=state.asked | {current}), (wanted,))
    return after, (Say(wanted), later)


def _when_ready(state: RoomKeys, event: TimePassed, now_ms: int) -> Step:
    """Hand keys to those who lack them, when it is our turn."""
    wanting = {lack: state.since.get(lack, now_ms) for lack in choosing.lacks(state)}
    due: dict[bytes, list[DeviceId]] = {}
    wake: int | None = None
    for (id, device), since in wanting.items():
        epoch = state.epochs[id]
        holders = [one for one in epoch.known_by if one in state.roster and one != device]
        at = since + choosing.delay_ms(id + device, holders, state.own.id)
        if now_ms >= at and (id in due or len(due) < MAX_HANDED_AT_ONCE):
            due.setdefault(id, []).append(device)
        else:
            wake = min(at, wake) if wake is not None else at
    said = [
        make_statement(
            Kind.HANDED,
            state.epochs[id].name,
            state.own.signing,
            state.keys[id],
            {device: state.roster[device].seal_key for device in devices[at : at + MAX_BOXES]},
        )
        for id, devices in due.items()
        for at in range(0, len(devices), MAX_BOXES)
    ]
    said += [
        make_statement(Kind.HANDED, state.epochs[id].name, state.own.signing, state.keys[id], _ourselves(state))
        for id in state.asked
        if id in state.keys and (state.own.id, state.own.id) not in state.epochs[id].handed
    ]  # so that nobody hands it to us any longer
    after, _ = _taken(replace(state, since=wanting), said)
    outputs: list[Output] = [Say(statement) for statement in said]
    if wake is not None:
        outputs.append(Wake(max(wake, now_ms)))
    return after, tuple(outputs)


def _ourselves(state: RoomKeys) -> dict[DeviceId, bytes]:
    return {state.own.id: state.roster[state.own.id].seal_key}


def _begin(state: RoomKeys, fresh: bytes, now_ms: int) -> Step:
    """Begin an epoch, and hand its key to everybody on the roster."""
    last = choosing.last_opened(state.epochs)
    number, before = (last.name.number, last.name.id) if last is not None else (0, NO_ID)
    name = EpochName(state.room, number + 1, before, state.own.id, commit(fresh))
    devices = sorted(state.roster, key=lambda device: (device != state.own.id, device))
    told = choosing.told_of(state.epochs, last)
    learned, unknown = (frozenset(sorted(ids)[:MAX_REMOVALS]) for ids in (state.removals - told, told - state.removals))
    said = [
        make_statement(
            Kind.HANDED if at else Kind.OPENED,
            name,
            state.own.signing,
            fresh,
            {device: state.roster[device].seal_key for device in devices[at : at + MAX_BOXES]},
            frozenset() if at else learned,
            frozenset() if at else unknown,
        )
        for at in range(0, len(devices), MAX_BOXES)
    ]
    keyed = replace(state, keys={**state.keys, name.id: fresh}, our_turn=False, since={})
    after, _ = _taken(keyed, said)
    if name.id not in after.epochs:  # we have opened as many as count, so others have to
        later = now_ms + choosing.MAX_TURNS * choosing.TURN_MS
        return replace(state, our_turn=False, since={(before, NO_ID): later}), (Wake(later),)
    return after, (*(Say(statement) for statement in said), KeysCame((name.id,)), Wake(now_ms))


def _taken(state: RoomKeys, statements: tuple[KeyStatement, ...] | list[KeyStatement]) -> Step:
    """Take statements into the state, and choose anew which epoch to write under."""
    epochs, keys = dict(state.epochs), dict(state.keys)
    opened = _opened_by(epochs)
    came: list[bytes] = []
    wrong: list[tuple[Complaint, DeviceId, bytes]] = []
    for said in statements:
        id = said.epoch.id
        epoch = epochs.get(id) or Epoch(said.epoch)
        if said.epoch.room != state.room or not _has_room(epochs, id, said, opened):
            continue
        if said.kind is Kind.OPENED and not epoch.is_opened:
            opened[said.signer] = opened.get(said.signer, 0) + 1
        epochs[id] = _with(epoch, said)
        box = said.box_for(state.own.id)
        if box is not None and id not in keys and said.epoch.number >= state.forgotten:
            key = open_box(said, state.own.id, state.own.seal_keys)
            if key is None:
                wrong.append((Complaint.UNOPENABLE, said.signer, id))
            else:
                keys[id] = key
                came.append(id)
    after = _chosen(replace(state, epochs=epochs, keys=keys))
    outputs: list[Output] = [KeysCame(tuple(came))] if came else []
    for complaint, device, id in wrong:
        after, told = _told(after, complaint, device, id)
        outputs += told
    return after, tuple(outputs)


def _opened_by(epochs: Mapping[bytes, Epoch]) -> dict[DeviceId, int]:
    counts: dict[DeviceId, int] = {}
    for epoch in epochs.values():
        if epoch.is_opened:
            counts[epoch.name.opener] = counts.get(epoch.name.opener, 0) + 1
    return counts


def _has_room(epochs: Mapping[bytes, Epoch], id: bytes, said: KeyStatement, opened: Mapping[DeviceId, int]) -> bool:
    if said.kind is Kind.OPENED and opened.get(said.signer, 0) >= MAX_EPOCHS_OF_DEVICE:
        return id in epochs and epochs[id].is_opened
    return id in epochs or len(epochs) < MAX_EPOCHS


def _with(epoch: Epoch, said: KeyStatement) -> Epoch:
    """Return what is known of an epoch with one more statement."""
    if len(epoch.handed) + len(epoch.wanted_by) >= MAX_SAID_OF_EPOCH and said.kind is not Kind.OPENED:
        return epoch
    if said.kind is Kind.WANTED:
        return replace(epoch, wanted_by=epoch.wanted_by | {said.signer})
    devices = frozenset(device for device, _ in said.boxes)
    if said.kind is Kind.OPENED:
        unknown = epoch.unknown & said.unknown if epoch.is_opened else said.unknown
        learned = epoch.learned | said.learned
        return replace(epoch, is_opened=True, boxes=epoch.boxes | devices, learned=learned, unknown=unknown)
    return replace(epoch, handed=epoch.handed | {(said.signer, device) for device in devices})


def _told(state: RoomKeys, complaint: Complaint, device: DeviceId, epoch: bytes) -> Step:
    """Tell something once."""
    about = (complaint.value, device, epoch)
    if about in state.told:
        return state, ()
    return replace(state, told=state.told | {about}), (Tell(complaint, device, epoch),)


def _chosen(state: RoomKeys) -> RoomKeys:
    current = choosing.current_of(state)
    return replace(state, current=current, our_turn=state.our_turn and current is None)


Handler = Callable[[RoomKeys, Any, int], Step]
_ALWAYS: Final[Mapping[type[Event], Handler]] = {
    RosterChanged: _roster,
    StatementsCame: _statements,
    DeviceRenewed: _renewed,
    KeysForgotten: _forgotten,
}
_TABLE: Final[Mapping[Phase, Mapping[type[Event], Handler]]] = {
    Phase.OUTSIDE: _ALWAYS,
    Phase.DUE: {**_ALWAYS, TimePassed: _when_due},
    Phase.LACKING: {**_ALWAYS, TimePassed: _when_lacking},
    Phase.READY: {**_ALWAYS, TimePassed: _when_ready},
}
"""What each event does in each phase; what is not here changes nothing and says nothing."""
