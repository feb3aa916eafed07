"""Finds what is damaged in the database of rooms, and makes it whole from the signed log and from members."""
