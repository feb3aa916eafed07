"""Gateways: programs that bring what is asked from elsewhere, and carry answers there (SuperAgent 8)."""
