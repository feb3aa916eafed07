"""The log: its form, its file, and how much of it one cause may fill."""
