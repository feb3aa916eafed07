"""The config of a room: who is a member with which power, decided from the signed log alone, alike on every peer."""
