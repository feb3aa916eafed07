"""What the picture of a profile costs, which a peer has made."""

from __future__ import annotations

from collections.abc import Sequence

from attacks.probe import CostProbe, Probe
from sublet.protocol.picture import picture_type

PROBES: Sequence[Probe] = (
    CostProbe(
        name="pictures: a JPEG of nothing but short segments",
        covers=("protocol.picture:picture_type", "protocol.picture:_jpeg"),
        make=lambda size: b"\xff\xd8" + b"\xff\xe1\0\2" * (size // 4),
        run=picture_type,
    ),
    CostProbe(
        name="pictures: a JPEG of nothing but fill bytes",
        covers=("protocol.picture:_jpeg",),
        make=lambda size: b"\xff\xd8" + b"\xff" * size,
        run=picture_type,
    ),
)
