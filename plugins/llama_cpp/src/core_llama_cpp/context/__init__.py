"""The one context of a model: its cells and sequences, cached prefixes, and forward passes."""
