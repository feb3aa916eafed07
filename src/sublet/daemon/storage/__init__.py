"""What is kept on the disk: database, journal, records and events; and what of it is forgotten."""
