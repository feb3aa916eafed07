"""The local web page: what the command line shows, in a browser of the same person on the same machine (DESIGN 10)."""
