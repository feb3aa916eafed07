"""What the engine's interfaces stand for: SQLite, Zenoh and pycrdt, and a network in memory for tests."""
