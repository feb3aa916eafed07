"""The engine: datatypes, hooks, annotations and indexes over a signed log; it knows no database and no network."""
