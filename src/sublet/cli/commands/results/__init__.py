"""Commands about what a delegation changed."""
