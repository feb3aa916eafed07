"""The wire of offices (A2C-SMCP 0.4): names, requests, the version handshake and frames."""
