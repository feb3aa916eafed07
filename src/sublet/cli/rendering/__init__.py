"""What people see of the daemon's answers."""
