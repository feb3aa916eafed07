"""Attacks on every way in: the pieces of an attacker (``kit``), what each costs (``probes``), and the tests."""
