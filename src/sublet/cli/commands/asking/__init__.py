"""Commands that ask agents of this daemon."""
