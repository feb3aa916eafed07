"""What is lent: the admission scan, name rules, the walk over what a lease exports, and the tree a client sees."""
