"""The session control plane: conversations of this daemon, and the sessions of the agents that take part in them."""
