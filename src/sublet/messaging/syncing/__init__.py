"""Asks peers for what is missing here, and answers what peers ask."""
