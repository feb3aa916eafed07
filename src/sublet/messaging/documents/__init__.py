"""Open documents: who wrote up to where, the order of elements, and where each item of an update belongs."""
