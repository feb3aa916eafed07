"""The face of federation: HTTP between nodes that are not paired, and whose keys federation.toml lists."""
