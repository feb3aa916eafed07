"""What built-ins and extensions declare, what their hooks and operations may use, and who runs them."""
