"""The registry of capabilities on the disk, and what runs them."""
