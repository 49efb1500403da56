"""Prompts that are continued: the engine and its rows."""
