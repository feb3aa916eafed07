"""Writes down what both cores do in a schedule: each event, what it changes, and what is to be done.

``python -m support.delegation_model.transcript`` (with ``PYTHONPATH=tests``) draws the transcripts anew. They are kept
so that a change of a rule is seen as a change of lines: whoever changes one reads what else it changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

from pydantic import BaseModel

from sublet.protocol.assignment import core as executor_core
from sublet.protocol.delegation import core as delegator_core
from sublet.protocol.errors import SubletError
from sublet.protocol.messages import Accept, Done
from sublet.protocol.prompt_state import PromptState
from sublet.protocol.times import Now
from support.delegation_model.schedule import play
from support.delegation_model.world import WALL, Weather

WEATHERS: Final = {
    "calm": Weather(),
    "channel": Weather(lose=0.2, double=0.2, slow=0.2),
    "kills": Weather(kill=0.02),
    "journal": Weather(fail=0.05),
    "policy": Weather(deny=0.2, slow=0.1),
    "lies": Weather(lie=0.3, double=0.1),
    "all": Weather(lose=0.1, double=0.1, slow=0.1, kill=0.02, fail=0.02, deny=0.1, lie=0.05),
}
SEEDS: Final = {
    "calm": (19, 69),
    "channel": (58, 108),
    "kills": (86, 111, 123, 144),
    "journal": (3, 19, 39, 46, 135),
    "policy": (38, 42, 65, 111),
    "lies": (86, 145),
    "all": (5, 6),
}
"""Of each weather some in which the most different things happen."""
PLACE: Final = Path(__file__).parents[2] / "protocol" / "transcripts"


def transcript(seed: int, weather: Weather) -> list[str]:
    """Return the lines of one schedule."""
    lines: list[str] = []
    with _written(delegator_core, "delegator", lines), _written(executor_core, "executor", lines):
        play(seed, weather)
    return lines


@contextmanager
def _written(core: Any, name: str, lines: list[str]) -> Iterator[None]:
    step = core.step

    def told(state: Any, event: Any, now: Now) -> Any:
        after, outputs = step(state, event, now)
        done = [_output(after, output) for output in outputs]
        lines.append(f"{now.wall - WALL:8.3f} {name:9} {_shown(event)}")
        lines.extend(f"{'':18} {line}" for line in [*_changed(state, after), *done])
        return after, outputs

    with mock.patch.object(core, "step", told):
        yield


def _output(after: Any, output: Any) -> str:
    """Say what is to be done; a record is told by how it differs from what the step ends with."""
    if type(output).__name__ != "Record":
        return f"> {_shown(output)}"
    rest = [f"{name}={_shown(value)}" for name, value in _given(output) if name != "now"]
    return " ".join(["> Record", *rest, *(change.lstrip("= ") for change in _changed(after, output.now))])


def _changed(before: Any, after: Any) -> list[str]:
    if type(before) is not type(after):
        return [f"= {_shown(after)}"]
    if not dataclasses.is_dataclass(after):
        return []
    pairs = ((one.name, getattr(before, one.name), getattr(after, one.name)) for one in dataclasses.fields(after))
    return [f"= {name}={_shown(new)}" for name, old, new in pairs if old is not new and old != new]


def _given(one: Any) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(one):
        value = getattr(one, field.name)
        if field.default is dataclasses.MISSING or value != field.default:
            yield field.name, value


def _shown(value: Any) -> str:
    if isinstance(value, SubletError):
        again = "" if value.retry_after_seconds is None else f", again in {value.retry_after_seconds} s"
        return f"{value.code}{again}"
    if isinstance(value, Accept | Done | PromptState):
        return f"{type(value).__name__}{_shown(value.model_dump(mode='json', exclude_defaults=True))}"
    if isinstance(value, BaseModel):
        return type(value).__name__
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_shown, value)))}}}"
    if dataclasses.is_dataclass(value):
        return f"{type(value).__name__}({', '.join(f'{name}={_shown(inner)}' for name, inner in _given(value))})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_shown(key)}: {_shown(inner)}' for key, inner in value.items())}}}"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def main() -> None:
    """Draw all of them."""
    PLACE.mkdir(exist_ok=True)
    for name, weather in WEATHERS.items():
        for seed in SEEDS[name]:
            (PLACE / f"{name}-{seed}.txt").write_text("\n".join(transcript(seed, weather)) + "\n")


if __name__ == "__main__":
    main()
