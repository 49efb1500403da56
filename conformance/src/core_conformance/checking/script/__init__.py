"""The calls of a check as Python that can be pasted."""
