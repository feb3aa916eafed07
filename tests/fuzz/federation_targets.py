"""What other nodes say: envelopes, events, pages, receipts and addresses."""

from __future__ import annotations

import json

from fuzz.targets_base import target  # placeholder
