"""Change sets: taken out of a private view, merged, applied as one or taken back, and exported."""
