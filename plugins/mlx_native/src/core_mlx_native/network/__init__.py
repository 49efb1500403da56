"""The network: one decoder for all families, and functions that run prompts through it."""
