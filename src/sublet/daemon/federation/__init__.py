"""Federation inside the daemon: its operations, its journal, and the policy that it asks."""
