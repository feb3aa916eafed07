"""What is gone for good: which tombstones count, what of a message they name, and taking it out of the rooms."""
