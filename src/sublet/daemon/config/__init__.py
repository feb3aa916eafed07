"""Where files are, what is configured, and what of it is shown."""
