"""A served face per test."""

from __future__ import annotations

from support.a2a_fixtures import bob, link

__all__ = ["bob", "link"]
