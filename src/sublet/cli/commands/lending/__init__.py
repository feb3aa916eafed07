"""Commands that lend, and that follow and steer what is lent."""
