"""Modules of the daemon: capabilities and gateways, each a directory with a ``module.json``."""
