"""Prompts that are continued: the engine, its rows, and their keys and values."""
