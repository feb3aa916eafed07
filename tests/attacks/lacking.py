"""The places of ``src`` that no probe runs through, for the kinds of what they do.

``python -m attacks.lacking``, with ``tests`` on the path, lists them; it takes minutes, since every probe runs.

A pattern needs a probe of cost that runs through it; a loop any probe; a cache a probe of what is kept; what opens,
removes or goes on by itself a failure that is thrown at it. A reason stands for any of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from attacks.counting import count_cost, count_failure, count_kept
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Reason
from attacks.probes import ALL
from attacks.sites import places


def without_probe() -> list[str]:
    """Run all probes; return each place that lacks one, with the kind of what it does."""
    reasons = {name for probe in ALL if isinstance(probe, Reason) for name in probe.covers}
    enough = _enough()
    return sorted(
        f"{name} ({kind})"
        for name, kinds in places().items()
        for kind in kinds
        if name not in reasons and name not in enough[kind]
    )


def _enough() -> Mapping[str, set[str]]:
    costs = {name for probe in ALL if isinstance(probe, CostProbe) for name in count_cost(probe).entered}
    kept = {name for probe in ALL if isinstance(probe, KeptProbe) for name in count_kept(probe).entered}
    thrown = {name for probe in ALL if isinstance(probe, FailureProbe) for name in count_failure(probe).entered}
    # The body of a module runs when it is imported: its patterns and caches are those of the functions beside it.
    bodies, kept_bodies = ({f"{name.partition(':')[0]}:module" for name in names} for names in (costs, kept))
    return {
        "pattern": costs | bodies,
        "loop": costs | kept | thrown,
        "cache": kept | kept_bodies,
        "open": thrown,
        "removal": thrown,
        "service": thrown,
    }


if __name__ == "__main__":
    print("\n".join(without_probe()))
