"""Commands about offices."""
