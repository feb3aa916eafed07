"""The transport ``git``: a snapshot of the view as a bundle out, and a bundle of the result back in."""
