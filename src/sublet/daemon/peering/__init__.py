"""Who we are and whom we know: keys, pairing, paired daemons, tokens."""
