"""What the daemon can be asked: operations, and what is asked and answered, as JSON objects of fixed shape."""
