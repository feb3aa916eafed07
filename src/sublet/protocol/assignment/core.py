"""Decides everything about one assignment, without sockets, files, clocks or chance (AWCP 4, DESIGN 4).

``step(state, event, now)`` returns the state that follows and what is to be done, in order. Its rules:

- What follows a ``Record`` is done only once that is durable. An output that can't be done ends the list: the driver
  keeps the state of the last ``Record`` that is durable, or else the one from before the step, and steps it with
  ``Undone``.
- The first end wins, and the first reason to stop is the one that is told.
- A message that is late, doubled or somebody else's changes nothing and is refused.
- What is held is given back by exactly one ``Free``.

Weak: policy is asked between two steps, so what it was asked about is looked at again once it has answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sublet.protocol.assignment import ending, opening, phases, running
from sublet.protocol.assignment.events import (
    AgentLaunched,
    CallerLeft,
    Event,
    InviteCame,
    InvitePrepared,
    InviteRefused,
    PolicySaid,
    PromptEnded,
    QuestionAsked,
    RenewalCame,
    Restarted,
    StartCame,
    StopCame,
    TimePassed,
    Undone,
    WindDownCame,
    WorkEnded,
)
from sublet.protocol.assignment.outputs import Step
from sublet.protocol.assignment.phases import Phase
from sublet.protocol.assignment.state import State
from sublet.protocol.times import Now


def step(state: State, event: Event, now: Now) -> Step:
    """Return the state after ``event``, and what is to be done, in order.

    Args:
        state: as the last step has left it; None for an id that was never heard of.
        event: what has happened.
        now: the time.
    """
    handler = _TABLE[phases.phase_of(state)].get(type(event), _ignore)
    return handler(state, event, now)


def _ignore(state: State, event: Event, now: Now) -> Step:
    return state, ()


Handler = Callable[[Any, Any, Now], Step]
_TABLE: Final[Mapping[Phase, Mapping[type[Event], Handler]]] = {
    Phase.UNKNOWN: {
        InviteCame: opening.consider,
        StartCame: opening.not_waiting,
        RenewalCame: running.not_running,
        PolicySaid: opening.asked_too_late,
        StopCame: ending.stranger,
        WindDownCame: ending.stranger,
    },
    Phase.CONSIDERED: {
        InviteCame: opening.also_considered,
        InvitePrepared: opening.accept,
        InviteRefused: opening.not_accepted,
        CallerLeft: opening.asker_left,
        StartCame: opening.not_waiting,
        RenewalCame: running.not_running,
        PolicySaid: opening.asked_too_late,
        StopCame: ending.stranger,
        WindDownCame: ending.stranger,
        Undone: opening.not_recorded,
    },
    Phase.WAITING: {
        InviteCame: opening.again,
        CallerLeft: ending.caller_left,
        StartCame: opening.ask_to_start,
        RenewalCame: running.not_running,
        PolicySaid: opening.start,
        StopCame: ending.give_up,
        WindDownCame: ending.give_up,
        TimePassed: ending.never_started,
        Undone: opening.could_not_start,
    },
    Phase.WORKING: {
        InviteCame: opening.used,
        StartCame: opening.not_waiting,
        RenewalCame: running.ask_to_renew,
        PolicySaid: running.renew,
        StopCame: ending.stop,
        WindDownCame: ending.wind_down,
        AgentLaunched: running.launched,
        PromptEnded: running.prompt_ended,
        QuestionAsked: running.question_asked,
        WorkEnded: ending.work_ended,
        TimePassed: ending.time_over,
        Undone: ending.could_not_go_on,
    },
    Phase.ENDED: {
        InviteCame: opening.used,
        StartCame: opening.not_waiting,
        RenewalCame: running.not_running,
        PolicySaid: opening.asked_too_late,
        StopCame: ending.stranger,
        WindDownCame: ending.stranger,
        Restarted: ending.killed,
    },
}
"""What each event does in each phase; what is not here changes nothing and says nothing."""
