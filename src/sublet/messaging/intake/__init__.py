"""The hot path: takes updates from the wire and from here, and makes them durable."""
