"""Helpers that tests of several layers share."""
