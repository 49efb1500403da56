"""Prompts that are read but not continued: classify, labels, scores, hidden states."""
