"""One input to one target, and what counts as a finding."""

from __future__ import annotations

import time

import fuzz.federation_targets
import fuzz.messaging_targets
import fuzz.office_targets
import fuzz.operation_targets
import fuzz.relay_targets
import fuzz.supervisor_targets  # noqa: F401  (registers its targets)
from fuzz.targets import TARGETS

SLOW_SECONDS = 2.0
"""An input of at most 64 KiB that takes more of the processor is a finding, too; a busy machine is none."""


class Finding(Exception):
    """An input that breaks its target."""


def feed(name: str, data: bytes) -> None:
    """Give ``data`` to the target.

    Raises:
        Finding: it raised what it does not document, or took too long.
    """
    target = TARGETS[name]
    began = time.process_time()
    try:
        target.call(data)
    except target.raises:
        pass
    except Exception as error:
        raise Finding(f"{name}: {type(error).__name__}: {error}") from error
    if time.process_time() - began > SLOW_SECONDS:
        raise Finding(f"{name}: took {time.process_time() - began:.1f} s")
