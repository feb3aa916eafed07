"""Offices (A2C-SMCP): tools of many Computers for one Agent, with walls that hold."""
