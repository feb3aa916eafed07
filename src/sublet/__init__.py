"""Sublet: one agent lends a directory to another, talks with it while it works, and stays in charge."""
