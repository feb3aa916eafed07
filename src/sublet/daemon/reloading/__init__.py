"""Configuration files that are put in force while the daemon runs: all of them at once, or none (DESIGN 7)."""
