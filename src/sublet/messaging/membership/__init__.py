"""How a room comes to be here and goes again: invitations, joining, forgetting."""
