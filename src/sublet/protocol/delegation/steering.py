"""What the delegator says while the work runs: more time by agreement of both sides, and further prompts (DESIGN 4.11).

Rules: one thing at a time is agreed on with the executor (``turn``); the executor's word is journalled there first,
then ours here; time is added only as far as policy, the caller's own lease and the executor have granted it; news of
a follow-up that is behind what is known changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from sublet.protocol.bounds import MAX_FOLLOW_UPS
from sublet.protocol.delegation import phases, reasons
from sublet.protocol.delegation.agreement import resumable
from sublet.protocol.delegation.events import (
    CallerLeft,
    Event,
    ExtensionAllowed,
    ExtensionAnswered,
    FollowUpAnswered,
    FollowUpDue,
    FollowUpSaid,
    FollowUpUnheard,
    ProgressCame,
)
from sublet.protocol.delegation.outputs import (
    Answer,
    AskPolicy,
    Deliver,
    DeliverLater,
    Lengthen,
    Output,
    Record,
    Refuse,
    SendExtension,
    Step,
)
from sublet.protocol.delegation.state import Delegation, ExtensionAsked, FollowUpNews, FollowUpState, SaidFollowUp
from sublet.protocol.errors import SubletError
from sublet.protocol.lifecycle import DELEGATION_TABLE, DelegationEvent, DelegationState, is_terminal
from sublet.protocol.times import Now, rfc3339_of, unix_seconds

FIRST_RETRY_SECONDS: Final = 0.5
MAX_RETRY_SECONDS: Final = 10.0

PROGRESS: Final[Mapping[FollowUpState, int]] = {
    "pending": 0,
    "delivered": 1,
    "running": 2,
    "done": 3,
    "failed": 3,
    "refused": 3,
}
"""How far a follow-up is in each state. News may arrive in any order; what is behind changes nothing."""

# What the executor reports


def progress(state: Delegation, event: ProgressCame, now: Now) -> Step:
    """Take the news of follow-ups; the first news of a running agent also makes the delegation RUNNING."""
    outputs: tuple[Output, ...] = ()
    if event.running and state.state is DelegationState.STARTED:
        state = phases.advanced(state, DelegationEvent.RUN)
        outputs = (Record(state),)
    state, news = take_news(state, event.heard)
    state, turn = next_turn(state, now)
    return state, (*outputs, *news, *turn)


# More time


def extension_asked(state: Delegation, event: ExtensionAsked, now: Now) -> Step:
    """Begin to agree on more time, or wait for the turn."""
    if (refusal := _refusal(state)) is not None:
        return state, (Refuse(event.key, refusal),)
    return next_turn(replace(state, extensions=(*state.extensions, event)), now)


def _begin_extension(state: Delegation, event: ExtensionAsked, now: Now) -> Step:
    more = min(event.seconds, event.longest - state.ttl_seconds)
    if more <= 0:
        return state, (Refuse(event.key, reasons.longest_already(event.longest)),)
    if event.within is not None and state.expires_at is not None:
        more = min(more, int(event.within - unix_seconds(state.expires_at)))
        if more <= 0:
            return state, (Refuse(event.key, reasons.caller_over(state.callers)),)
    return replace(state, turn=event.key), (AskPolicy(event.key, more, state.ttl_seconds + more),)


def extension_allowed(state: Delegation, event: ExtensionAllowed, now: Now) -> Step:
    """Ask the executor for the time that policy has allowed."""
    if event.key != state.turn:
        return state, ()
    if event.error is not None:
        return _end_turn(state, now, Refuse(event.key, event.error))
    return state, (SendExtension(event.key, event.more),)


def extension_answered(state: Delegation, event: ExtensionAnswered, now: Now) -> Step:
    """Lengthen the lease by as much as the executor has agreed to."""
    if event.key != state.turn:
        return state, ()
    gained = min(event.more, event.more - (event.asked - event.agreed))
    error = event.error
    if error is None and gained <= 0:
        error = reasons.no_more_time(state.peer)
    if error is not None:
        return _end_turn(state, now, Refuse(event.key, error))
    assert state.expires_at is not None
    longer = replace(
        state,
        ttl_seconds=state.ttl_seconds + gained,
        expires_at=rfc3339_of(unix_seconds(state.expires_at) + gained),
        deadline=state.deadline + gained,
    )
    return _end_turn(longer, now, Record(longer, extended=gained), Lengthen(gained), Answer(event.key))


def caller_left(state: Delegation, event: CallerLeft, now: Now) -> Step:
    """Go on with what waits for its turn."""
    if event.key == state.turn:
        return _end_turn(state, now)
    return replace(state, extensions=tuple(one for one in state.extensions if one.key != event.key)), ()


# Further prompts


def follow_up_said(state: Delegation, event: FollowUpSaid, now: Now) -> Step:
    """Keep a further prompt, and send it when it is its turn. Saying one twice is harmless."""
    known = _find(state, event.id)
    if (refusal := _refusal(state)) is None and known is not None and known.digest != event.digest:
        refusal = reasons.another_follow_up(event.id)
    if refusal is None and known is None and len(state.follow_ups) >= MAX_FOLLOW_UPS:
        refusal = reasons.too_many_follow_ups()
    if refusal is not None:
        return state, (Refuse(event.id, refusal),)
    if known is not None:
        return state, (Answer(event.id),)
    state, outputs = _note(state, SaidFollowUp(event.id, event.prompt, event.digest))
    state, turn = next_turn(state, now)
    return state, (*outputs, Answer(event.id), *turn)


def follow_up_answered(state: Delegation, event: FollowUpAnswered, now: Now) -> Step:
    """Keep whether the executor has taken a follow-up."""
    news: tuple[Output, ...] = ()
    if (known := _find(state, event.id)) is not None:
        taken = replace(known, state="refused" if event.why else "delivered", why=event.why)
        state, news = _note(state, taken)
    if event.id != state.turn:
        return state, news
    return _end_turn(replace(state, delivery_wait=0.0), now, *news)


def follow_up_unheard(state: Delegation, event: FollowUpUnheard, now: Now) -> Step:
    """Send it again in a while; others may have their turn meanwhile."""
    if event.id != state.turn:
        return state, ()
    wait = state.delivery_wait or FIRST_RETRY_SECONDS
    waiting = replace(state, turn=None, delivery_wait=min(2 * wait, MAX_RETRY_SECONDS))
    # What is asked for now has its turn; what is to be delivered waits.
    if waiting.extensions:
        waiting, outputs = next_turn(waiting, now)
        return waiting, (*outputs, DeliverLater(wait))
    return waiting, (DeliverLater(wait),)


def follow_up_due(state: Delegation, event: FollowUpDue, now: Now) -> Step:
    """Send what was not taken yet."""
    return next_turn(state, now)


def take_news(state: Delegation, heard: Iterable[FollowUpNews]) -> Step:
    """Keep what the executor says of follow-ups; of one that was never said nothing is kept."""
    outputs: tuple[Output, ...] = ()
    for one in heard:
        if (known := _find(state, one.id)) is not None:
            state, news = _note(state, replace(known, state=one.state, why=one.why))
            outputs += news
    return state, outputs


# Whose turn it is


def next_turn(state: Delegation, now: Now) -> Step:
    """Begin what waits, where nothing is being agreed on.

    A process that has taken the delegation over has nothing to send before it serves the lease again.
    """
    outputs: tuple[Output, ...] = ()
    if not state.served:
        return state, outputs
    for asked in state.extensions:
        if state.turn is None:
            state, more = _begin_extension(replace(state, extensions=state.extensions[1:]), asked, now)
            outputs += more
    if state.turn is None and state.state is DelegationState.RUNNING and resumable(state.accept):
        said = next((one for one in state.follow_ups if one.state == "pending"), None)
        if said is not None:
            return replace(state, turn=said.id), (*outputs, Deliver(said))
    return state, outputs


def closed(state: Delegation) -> Step:
    """Refuse what waits for its turn, as the delegation is over."""
    waiting = [one.key for one in state.extensions]
    if state.turn is not None and _find(state, state.turn) is None:
        waiting.insert(0, state.turn)
    error = reasons.is_over(state.id, state.state)
    return replace(state, turn=None, extensions=()), tuple(Refuse(key, error) for key in waiting)


def refusals(state: Delegation, event: Event) -> tuple[Output, ...]:
    """Return what is said to the caller of an event that came once the delegation was over."""
    match event:
        case ExtensionAsked(key=key) | FollowUpSaid(id=key):
            return (Refuse(key, reasons.is_over(state.id, state.state)),)
    return ()


def refuse(
    state: Delegation, event: ExtensionAsked | FollowUpSaid | ExtensionAllowed | ExtensionAnswered, now: Now
) -> Step:
    """Refuse what only work that runs can do."""
    over = state.done or state.left or is_terminal(DELEGATION_TABLE, state.state)
    error = reasons.is_over(state.id, state.state) if over else reasons.not_begun(state.state)
    if isinstance(event, ExtensionAsked | FollowUpSaid):
        return state, (Refuse(event.id if isinstance(event, FollowUpSaid) else event.key, error),)
    return state, ()


def _end_turn(state: Delegation, now: Now, *outputs: Output) -> Step:
    state, more = next_turn(replace(state, turn=None), now)
    return state, (*outputs, *more)


def _refusal(state: Delegation) -> SubletError | None:
    if state.state is not DelegationState.RUNNING:
        return reasons.not_begun(state.state)
    return None if resumable(state.accept) else reasons.deaf(state.peer)


def _note(state: Delegation, said: SaidFollowUp) -> Step:
    """Journal a follow-up, or what became of it; news that is behind what is known changes nothing."""
    known = _find(state, said.id)
    if known is not None and PROGRESS[said.state] <= PROGRESS[known.state]:
        return state, ()
    follow_ups = {**{one.id: one for one in state.follow_ups}, said.id: said}
    state = replace(state, follow_ups=tuple(follow_ups.values()))
    return state, (Record(state, said=said),)


def _find(state: Delegation, follow_up_id: str) -> SaidFollowUp | None:
    return next((one for one in state.follow_ups if one.id == follow_up_id), None)
