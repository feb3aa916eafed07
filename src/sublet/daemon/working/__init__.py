"""The executor's side: what is agreed to, and the work from START to its end."""
