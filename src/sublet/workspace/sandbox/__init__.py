"""What an agent is confined by: bubblewrap, control groups, and the size of its scratch directory."""
