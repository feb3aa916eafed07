"""What was accepted and is not durable yet: staged, told to the hooks, committed."""
