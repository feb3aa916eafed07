"""State directories of versions that were released, frozen, so that every later version is shown to take them up."""
