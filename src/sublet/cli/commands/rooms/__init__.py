"""Commands about rooms and messages."""
