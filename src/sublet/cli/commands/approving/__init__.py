"""Commands by which a person allows what agents ask for."""
