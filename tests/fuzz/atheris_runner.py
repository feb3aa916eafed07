"""One target by atheris, in a process of its own: ``python -m fuzz.atheris_runner TARGET SECONDS SEED``.

atheris instruments what is imported, so nothing of ours may be imported before it.
"""

from __future__ import annotations

import importlib
import sys

from fuzz.corpus import FOUND, SEEDS
from fuzz.mutation import MAX_INPUT_BYTES


def main() -> None:
    """Fuzz until the time is over; ends the process, with a status that is not 0 after a finding."""
    name, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["sublet"]):
        feeding = importlib.import_module("fuzz.feeding")
    corpus = FOUND / f"{name}-corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={max(1, int(seconds))}",
        f"-max_len={MAX_INPUT_BYTES}",
        f"-seed={seed or 1}",
        "-rss_limit_mb=2048",
        "-timeout=10",
        f"-artifact_prefix={FOUND / name}-",
    ]
    arguments = [sys.argv[0], *options, str(corpus), str(SEEDS / name)]
    atheris.Setup(arguments, lambda data: feeding.feed(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
