"""What a relay and a daemon say to each other: keys below a slot, requests of accounts, statements of rooms."""
