"""Which documents are open in memory, and the updates of the log that they are read from."""
