"""Texts that several write: merged from those updates of the log that count."""
