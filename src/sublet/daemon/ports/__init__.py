"""What the daemon and the faces above it need of each other, as interfaces and values."""
