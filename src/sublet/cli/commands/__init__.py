"""The commands, in packages by what they are about."""
