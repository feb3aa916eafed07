"""Commands about relays: running one, and having a name at one."""
