"""Private views of staged leases: copied or layered, found again after a crash, and removed."""
