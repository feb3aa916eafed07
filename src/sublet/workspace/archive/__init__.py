"""The transport ``archive``: a view as a tar stream out, and what was changed back in."""
