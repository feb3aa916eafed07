"""The local daemon: composition root, store, delegations, recovery and control API."""
