"""Commands about paired daemons, tokens, and what hosts may lend."""
