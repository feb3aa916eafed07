"""How two members find out what differs between their copies of a room."""
