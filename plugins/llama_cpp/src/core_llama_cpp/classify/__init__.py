"""Prompts that are read and not continued: classify, labels, scores."""
