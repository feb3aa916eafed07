"""Links of the bus: mutual TLS by pinned keys around Zenoh, which itself is reached by its own daemon alone."""
