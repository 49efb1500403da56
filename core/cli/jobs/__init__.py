"""Rows from a file into a file: what was done is known, and a broken job goes on where it ended."""
