"""What messaging needs of a database, a bus, and a place for files: interfaces, and the rows that pass through them."""
