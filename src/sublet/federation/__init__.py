"""Agents of many nodes: who is there, who is asked, and what they do for each other."""
