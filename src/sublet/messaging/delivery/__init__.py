"""Whether messages have arrived and were read: acknowledgements between daemons, and receipts (DESIGN 6.9)."""
