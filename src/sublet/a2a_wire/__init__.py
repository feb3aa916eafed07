"""What both sides of A2A have in common: cards, assertions, parts, and names on the wire."""
