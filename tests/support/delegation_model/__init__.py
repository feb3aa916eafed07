"""Both cores of a delegation as two processes that are killed, over a channel that loses, doubles, reorders, delays."""
