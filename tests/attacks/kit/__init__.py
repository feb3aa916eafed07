"""Small pieces of an attacker, to be put together: a lender, an executor, a caller, a neighbour, a repository."""
