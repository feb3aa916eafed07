"""One daemon as a process: its lock, its own files, its faces, why it ends, what the last one left."""
