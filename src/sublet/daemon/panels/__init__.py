"""Panels: one task for several agents at once, checked, compared, and one result taken."""
