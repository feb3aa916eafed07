"""SSH for both sides: keys, the executor's connection, channels with our own flow control, and reverse dialling."""
